//! Retries: when, how often, for which failures, and with what budget.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::error::{Failure, ReceiptError};
use keylane::{Retry, RetryBudget};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, dispatcher, paused, quiet, scripted,
};
use keylane_testkit::{Act, Event, Evidence, History, Id, Script, ScriptError};

use crate::support::boxed;

/// How long after the first start each attempt of a message started, in milliseconds.
fn attempts_of(history: &History, of: Id) -> Vec<u64> {
    let records = history.records();
    let starts: Vec<_> = records
        .iter()
        .filter(|record| matches!(record.event, Event::Start { id, .. } if id == of))
        .map(|record| record.at)
        .collect();
    starts
        .iter()
        .map(|start| (*start - starts[0]).as_millis() as u64)
        .collect()
}

/// One message that always fails, under this policy: when its attempts started.
async fn attempts_under(retry: Retry<ScriptError>) -> Vec<u64> {
    let history = History::new();
    let script = Script::new(&history).otherwise(Act::error());
    let orders = dispatcher().retry(retry).spawn(scripted(script)).unwrap();
    let producer = Producer::new(&history, orders);
    let receipt = producer.submit(1).await;
    assert!(matches!(receipt.await, Err(ReceiptError::Failed(_))));
    producer.finish(Evidence::new().discarded([1])).await;
    attempts_of(&history, 1)
}

/// Timers go by whole milliseconds and round up.
#[track_caller]
fn assert_near(times: &[u64], expected: &[u64]) {
    assert_eq!(times.len(), expected.len(), "{times:?}");
    for (n, (time, expected)) in times.iter().zip(expected).enumerate() {
        let late = 2 * n as u64;
        assert!(
            (*expected..=expected + late).contains(time),
            "{times:?}, not {expected}"
        );
    }
}

#[test]
fn exponential_waits_double_up_to_the_cap() {
    paused().block_on(async {
        let retry = Retry::exponential(100 * MS)
            .jitter(0.0)
            .max_attempts(6)
            .cap(500 * MS);
        assert_near(
            &attempts_under(retry).await,
            &[0, 100, 300, 700, 1_200, 1_700],
        );
    });
}

#[test]
fn fixed_waits_stay_the_same() {
    paused().block_on(async {
        let times = attempts_under(Retry::fixed(70 * MS)).await;
        assert_near(&times, &[0, 70, 140, 210, 280]);
    });
}

#[test]
fn jitter_shortens_each_wait_within_its_fraction() {
    paused().block_on(async {
        let mut waits = Vec::new();
        for _ in 0..20 {
            let retry = Retry::fixed(1_000 * MS).jitter(0.5).max_attempts(2);
            waits.push(attempts_under(retry).await[1]);
        }
        assert!(
            waits.iter().all(|wait| (500..=1_002).contains(wait)),
            "{waits:?}"
        );
        let spread = waits.iter().max().unwrap() - waits.iter().min().unwrap();
        assert!(spread > 50, "{waits:?}");
    });
}

#[test]
fn a_custom_policy_is_asked_with_attempt_and_failure_and_may_give_up() {
    paused().block_on(async {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let retry = Retry::custom(move |attempt, failure: &Failure<ScriptError>| {
            seen.lock().unwrap().push((attempt, failure.clone()));
            (attempt < 3).then_some(10 * MS * attempt)
        });
        assert_near(&attempts_under(retry).await, &[0, 10, 30]);
        let expected: Vec<_> = (1..=3)
            .map(|n| (n, Failure::Error(ScriptError::Error(1))))
            .collect();
        assert_eq!(*asked.lock().unwrap(), expected);
    });
}

#[test]
fn no_attempts_at_all_counts_as_one() {
    paused().block_on(async {
        assert_eq!(attempts_under(Retry::fixed(MS).max_attempts(0)).await, [0]);
        assert_eq!(attempts_under(Retry::fixed(MS).max_attempts(1)).await, [0]);
    });
}

#[test]
fn a_wait_of_nothing_is_still_a_retry() {
    paused().block_on(async {
        let times = attempts_under(Retry::fixed(Duration::ZERO).max_attempts(50)).await;
        assert_eq!(times.len(), 50);
    });
}

#[test]
fn the_longest_wait_is_a_year_and_overflows_nothing() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).attempt(1, 1, Act::error());
        let orders = dispatcher()
            .retry(Retry::fixed(Duration::MAX))
            // Or the watch would wake up four times in each second of the year.
            .stuck_after(Duration::from_secs(400 * 24 * 3_600))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(1).await;
        assert_eq!(producer.dispatcher.drain().await.done, 1);
        let year = 365 * 24 * 3_600 * 1_000;
        let times = attempts_of(&history, 1);
        assert!((year..year + 1_000).contains(&times[1]), "{times:?}");
    });
}

#[test]
fn only_what_is_worth_it_is_tried_again() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history)
            .message(1, Act::error())
            .message(2, Act::fatal())
            .message(3, Act::panic())
            .message(4, Act::never());
        let worth: fn(&Failure<ScriptError>) -> bool = |failure| match failure {
            Failure::Error(error) => !error.is_fatal(),
            Failure::TimedOut(limit) => *limit == SECOND,
            _ => false,
        };
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .retry(Retry::fixed(MS).max_attempts(3).retry_if(worth))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in 1..=4 {
            producer.send(key).await;
        }
        producer.finish(Evidence::new().discarded(1..=4)).await;
        let attempts = [1, 2, 3, 4].map(|id| attempts_of(&history, id).len());
        assert_eq!(attempts, [3, 1, 1, 3]);
    });
}

#[test]
fn a_policy_that_panics_gives_up() {
    paused().block_on(async {
        for which in 0..2 {
            let history = History::new();
            let script = Script::new(&history).message(1, Act::error());
            let panics = |_: &Failure<ScriptError>| -> bool {
                std::panic::resume_unwind(Box::new("the policy panics"))
            };
            let retry = match which {
                0 => Retry::fixed(MS).retry_if(panics),
                _ => Retry::custom(move |_, failure| panics(failure).then_some(MS)),
            };
            let producer = Producer::new(
                &history,
                dispatcher().retry(retry).spawn(scripted(script)).unwrap(),
            );
            let receipt = producer.submit(1).await;
            producer.send(1).await;
            let told = receipt.await.unwrap_err();
            let expected = ReceiptError::Failed(Failure::Error(ScriptError::Error(1)));
            assert_eq!(told, expected);
            assert_eq!(producer.dispatcher.stats().panics, 1);
            producer.finish(Evidence::new().discarded([1])).await;
        }
    });
}

#[test]
fn each_attempt_knows_its_number_its_key_and_gets_the_message_again() {
    paused().block_on(async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let orders = keylane::Dispatcher::builder(|n: &u64| n % 10)
            .retry(Retry::fixed(MS).max_attempts(3))
            .spawn(boxed(move |ctx, n| {
                log.lock()
                    .unwrap()
                    .push((ctx.attempt(), ctx.key().copied(), n));
                async move {
                    if ctx.attempt() < 3 {
                        Err(())
                    } else {
                        Ok(u64::from(ctx.attempt()))
                    }
                }
            }))
            .unwrap();
        let receipt = orders.submit(74).await.unwrap();
        assert_eq!(receipt.await.unwrap(), 3);
        let expected: Vec<_> = (1..=3).map(|n| (n, Some(4), 74)).collect();
        assert_eq!(*seen.lock().unwrap(), expected);
        let stats = orders.stats();
        assert_eq!((stats.failures, stats.retries, stats.done), (2, 2, 1));
    });
}

/// An outage: everything fails until it is over. The budget lets through what it says, and nothing
/// is given up for want of it.
#[test]
fn a_budget_puts_retries_off_and_gives_none_up() {
    paused().block_on(async {
        let history = History::new();
        let began = tokio::time::Instant::now();
        let script = Script::new(&history).choose(move |_| {
            if began.elapsed() < 10 * SECOND {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let orders = dispatcher()
            .retry(Retry::fixed(10 * MS).max_attempts(u32::MAX))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(20))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in 0..100 {
            producer.send(Some(key).filter(|key| key % 10 != 0)).await;
        }
        tokio::time::sleep(10 * SECOND).await;
        let stats = producer.dispatcher.stats();
        // Twenty a second, and those of the first moment.
        assert!((180..=240).contains(&stats.retries), "{stats:?}");
        assert!(stats.postponed > 0, "{stats:?}");
        assert_eq!(stats.discarded, 0);
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 100);
    });
}

/// What goes well earns retries.
#[test]
fn a_budget_grows_with_the_traffic() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            if cue.key == Some(0) {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let orders = dispatcher()
            .retry(Retry::fixed(MS).max_attempts(u32::MAX))
            .retry_budget(RetryBudget::new().ratio(0.5).min_per_second(1))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(0).await;
        tokio::time::sleep(2 * SECOND).await;
        let without = producer.dispatcher.stats().retries;
        assert!(without <= 4, "{without}");
        for _ in 0..100 {
            producer.send(1).await;
        }
        tokio::time::sleep(SECOND).await;
        let with = producer.dispatcher.stats().retries - without;
        assert!((45..=55).contains(&with), "{with} retries for 100 messages");
        let report = producer.dispatcher.abort().await;
        producer.judge(&report, Evidence::new().handed_back([1]));
    });
}

/// The first attempts of other messages are no retries and need no budget.
#[test]
fn a_budget_that_is_used_up_stops_no_first_attempt() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).key(0, Act::error());
        let orders = dispatcher()
            .retry(Retry::fixed(MS).max_attempts(u32::MAX))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(1))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(0).await;
        tokio::time::sleep(10 * MS).await;
        for key in 1..50 {
            producer.send(key).await;
        }
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, 49);
        let report = producer.dispatcher.close().await;
        assert_eq!(
            report.returned[0].message,
            Some(Message {
                key: Some(0),
                id: 1
            })
        );
        producer.judge(&report, Evidence::new().handed_back([1]));
    });
}

/// The set of retries was ordered by a field that changed while they were in it: some were never
/// found again.
#[test]
fn retries_due_together_and_retries_put_off_are_all_found_again() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            if cue.attempt < 4 {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let orders = dispatcher()
            .retry(Retry::fixed(100 * MS).max_attempts(4))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(100))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in 0..300 {
            producer.send(Some(key).filter(|key| key % 10 != 0)).await;
        }
        let dispatcher = producer.dispatcher.clone();
        let report = producer.finish(Evidence::new().max_attempts(4)).await;
        assert_eq!(report.done, 300);
        let stats = dispatcher.stats();
        assert_eq!(stats.retries, 900);
        assert!(stats.postponed > 100, "{stats:?}");
    });
}
