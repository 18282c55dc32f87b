//! The rate of the whole dispatcher: how much starts in which time, and who holds what meanwhile.

use std::sync::{Arc, Mutex};

use keylane::error::{BoxError, BuildError};
use keylane::{DeadLetter, DeadLetterSink, OnExhausted, Rate, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, Random, SECOND, assert_report_adds_up, dispatcher, on_both, paused,
    quiet, scripted, within,
};
use keylane_testkit::{Act, Event, Evidence, Gate, History, Id, Key, Script, ScriptError};
use tokio::time::{Instant, sleep};

/// When attempts started, in milliseconds since then.
fn starts(history: &History, since: Instant) -> Vec<u64> {
    let records = history.records();
    let starts = records
        .iter()
        .filter(|record| matches!(record.event, Event::Start { .. }));
    starts
        .map(|record| (record.at - since).as_millis() as u64)
        .collect()
}

/// A producer whose handlers answer at once.
fn prompt(rate: Rate) -> (Producer, History, Instant) {
    let history = History::new();
    let script = Script::new(&history);
    let producer = Producer::new(
        &history,
        dispatcher().rate(rate).spawn(scripted(script)).unwrap(),
    );
    (producer, history, Instant::now())
}

#[test]
fn a_burst_and_then_evenly_whatever_the_keys() {
    paused().block_on(async {
        for keys in [1, 3, 100] {
            let (producer, history, since) = prompt(Rate::per_second(10).burst(4));
            for n in 0..10 {
                producer.send(n % keys).await;
            }
            producer.finish(Evidence::new()).await;
            let expected = [0, 0, 0, 0, 100, 200, 300, 400, 500, 600];
            assert_eq!(starts(&history, since), expected, "{keys} keys");
        }
    });
}

#[test]
fn what_was_not_used_is_saved_up_to_the_burst() {
    paused().block_on(async {
        let (producer, history, since) = prompt(Rate::per_second(10).burst(2));
        for wait in [0, 10_000, 100] {
            sleep(MS * wait).await;
            for key in 0..3 {
                producer.send(key).await;
            }
        }
        producer.finish(Evidence::new()).await;
        let expected = [0, 0, 100, 10_000, 10_000, 10_100, 10_200, 10_300, 10_400];
        assert_eq!(starts(&history, since), expected);
    });
}

#[test]
fn no_window_has_more_and_nothing_is_wasted() {
    paused().block_on(async {
        let mut dice = Random::new(7);
        for _ in 0..30 {
            let (every, burst) = (1 + dice.below(40), 1 + dice.below(6));
            let rate = Rate::per(1, MS * every as u32).burst(burst as u32);
            let (producer, history, since) = prompt(rate);
            let (mut sent, mut expected, mut saved) = (Vec::new(), Vec::new(), 0_u64);
            for _ in 0..60 {
                sleep(MS * dice.below(2 * every) as u32).await;
                producer.send(dice.below(5)).await;
                sent.push((Instant::now() - since).as_millis() as u64);
            }
            producer.finish(Evidence::new()).await;
            // A bucket of `burst` tokens, in milliseconds: `saved` is when it will be full again.
            for at in sent {
                let start = at.max(saved.saturating_sub(every * (burst - 1)));
                saved = saved.max(start) + every;
                expected.push(start);
            }
            assert_eq!(starts(&history, since), expected, "{rate:?}");
        }
    });
}

#[test]
fn what_waits_for_the_rate_holds_no_runner() {
    paused().block_on(async {
        let (producer, history, _) = prompt(Rate::per_second(1));
        for key in 0..5 {
            producer.send_all(key, 2).await;
        }
        quiet().await;
        for left in (1..=4).rev() {
            let stats = producer.dispatcher.stats();
            assert_eq!((stats.in_flight, stats.ready), (0, 5), "{left}");
            sleep(SECOND).await;
        }
        assert_eq!(starts(&history, Instant::now() - SECOND * 9).len(), 5);
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn one_permit_is_enough_and_its_end_is_not_missed() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let orders = dispatcher().rate(Rate::per_second(10)).concurrency(1);
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        let since = Instant::now();
        producer.send_all(1, 2).await;
        producer.send_all(2, 2).await;
        gate.arrivals(1).await;
        // The rate would let the next one go, and there is no permit for it.
        sleep(MS * 350).await;
        assert_eq!(producer.dispatcher.stats().in_flight, 1);
        gate.open();
        producer.finish(Evidence::new().concurrency(1)).await;
        assert_eq!(starts(&history, since), [0, 350, 450, 550]);
    });
}

#[test]
fn a_key_that_holds_its_handler_keeps_no_other_from_the_rate() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let orders = dispatcher()
            .rate(Rate::per_second(10))
            .spawn(scripted(script));
        let producer = Producer::new(&history, orders.unwrap());
        let since = Instant::now();
        producer.send_all(1, 3).await;
        producer.send_all(2, 3).await;
        sleep(SECOND).await;
        assert_eq!(starts(&history, since), [0, 100, 200, 300]);
        gate.open();
        producer.finish(Evidence::new()).await;
        assert_eq!(starts(&history, since)[4..], [1_000, 1_100]);
    });
}

#[test]
fn every_attempt_counts() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| match cue.attempt {
            3 => Act::ok(),
            _ => Act::error(),
        });
        let retry = Retry::fixed(MS).jitter(0.0).max_attempts(3);
        let orders = dispatcher().rate(Rate::per_second(10)).retry(retry);
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        let since = Instant::now();
        producer.send(1).await;
        producer.send(2).await;
        producer.finish(Evidence::new().max_attempts(3)).await;
        assert_eq!(starts(&history, since), [0, 100, 200, 300, 400, 500]);
    });
}

/// Refuses each letter once, and writes down when it accepts.
#[derive(Clone, Default)]
struct Sink {
    refused: Arc<Mutex<Vec<Id>>>,
    accepted: Arc<Mutex<Vec<Instant>>>,
}

#[keylane::async_trait]
impl DeadLetterSink<Key, Message, ScriptError> for Sink {
    async fn accept(&self, letter: &DeadLetter<Key, Message, ScriptError>) -> Result<(), BoxError> {
        let mut refused = self.refused.lock().unwrap();
        if refused.contains(&letter.message.id) {
            self.accepted.lock().unwrap().push(Instant::now());
            return Ok(());
        }
        refused.push(letter.message.id);
        Err("once more, please".into())
    }
}

#[test]
fn letters_do_not_count_and_do_not_wait() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let sink = Sink::default();
        let orders = dispatcher()
            .rate(Rate::per(1, SECOND * 100))
            .on_exhausted(OnExhausted::DeadLetter(Arc::new(sink.clone())));
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        let since = Instant::now();
        for key in 1..=3 {
            producer.send(key).await;
        }
        let report = producer.dispatcher.drain().await;
        assert_eq!(report.dead_lettered, 3);
        assert_eq!(starts(&history, since), [0, 100_000, 200_000]);
        // Long before the next attempt: the sink is asked again after a second or so.
        let accepted = sink.accepted.lock().unwrap();
        let after: Vec<_> = accepted.iter().map(|at| (*at - since).as_secs()).collect();
        let attempts = [0, 100, 200];
        let waits = after.iter().zip(attempts).map(|(at, attempt)| at - attempt);
        assert!(waits.clone().all(|wait| wait < 50), "{after:?}");
    });
}

#[test]
fn close_and_abort_hand_back_at_once() {
    paused().block_on(async {
        for aborts in [false, true] {
            let (producer, history, since) = prompt(Rate::per(1, SECOND * 3_600));
            for key in 0..4 {
                producer.send_all(key, 2).await;
            }
            quiet().await;
            let ending = if aborts {
                producer.dispatcher.abort()
            } else {
                producer.dispatcher.close()
            };
            let report = within(async { ending.await }).await;
            assert_report_adds_up(&report);
            assert_eq!((report.done, report.handed_back), (1, 7));
            assert!(since.elapsed() < SECOND, "{:?}", since.elapsed());
            assert_eq!(starts(&history, since), [0]);
        }
    });
}

#[test]
fn drain_keeps_the_rate_up_to_its_deadline() {
    paused().block_on(async {
        let (producer, history, since) = prompt(Rate::per_second(1));
        for key in 0..10 {
            producer.send(key).await;
        }
        let report = producer
            .dispatcher
            .drain()
            .within(SECOND * 4 + MS * 500)
            .await;
        assert_report_adds_up(&report);
        assert!(report.deadline_reached, "{report}");
        assert_eq!((report.done, report.handed_back), (5, 5));
        assert_eq!(starts(&history, since), [0, 1_000, 2_000, 3_000, 4_000]);
    });
}

#[test]
fn a_fast_rate_is_reached_although_timers_are_coarse() {
    paused().block_on(async {
        let (producer, history, since) = prompt(Rate::per_second(10_000));
        for n in 0..5_000 {
            producer.send(n % 50).await;
        }
        producer.finish(Evidence::new()).await;
        let starts = starts(&history, since);
        let last = *starts.last().unwrap();
        assert!((498..=502).contains(&last), "5,000 took {last} ms");
        assert!(
            starts
                .iter()
                .enumerate()
                .all(|(n, at)| n as u64 <= 20 + at * 10)
        );
    });
}

#[test]
fn nothing_is_forgotten_on_several_threads() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields(cue.id as u32 % 3));
        let orders = dispatcher()
            .rate(Rate::per_second(5_000))
            .quantum(3)
            .concurrency(8);
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        let senders: Vec<_> = (0..4)
            .map(|key| {
                let producer = producer.clone();
                tokio::spawn(async move {
                    for n in 0..150 {
                        producer.send(if n % 5 == 0 { 9 + key } else { key }).await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for sender in senders {
            within(sender).await.unwrap();
        }
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 600);
    });
}

#[test]
fn what_cannot_be_kept_is_refused() {
    paused().block_on(async {
        let refused = |rate: Rate| {
            let script = Script::new(&History::new());
            dispatcher().rate(rate).spawn(scripted(script)).err()
        };
        assert_eq!(refused(Rate::per_second(0)), Some(BuildError::Zero("rate")));
        let too_large = Some(BuildError::TooLarge("rate"));
        assert_eq!(refused(Rate::per_second(u32::MAX)), too_large);
        assert_eq!(refused(Rate::per_second(1)), None);
    });
}
