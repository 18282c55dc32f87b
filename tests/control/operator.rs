//! What an operator may do to a lane, in each of its states.

use keylane::error::LaneError;
use keylane::{Retry, RetryBudget};
use keylane_testkit::Act;
use keylane_testkit::scenario::{MS, Message, check_waits, outcome, settle, within_years};

use crate::states::{State, arrange};
use crate::support::{
    CAPACITY, HOUR, PLAIN_OUTCOMES, Recorder, at, dispatcher, send_all, submit_all,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Resume,
    Skip,
    Replace,
    Purge,
    RetryNow,
}

use Operation::{Purge, Replace, Resume, RetryNow, Skip};

const OPERATIONS: [Operation; 5] = [Resume, Skip, Replace, Purge, RetryNow];

/// What it answers, and what becomes of messages 1 and 2.
fn expected(state: State, operation: Operation) -> (String, [&'static str; 2]) {
    let said = |what: &str, words| (what.to_owned(), words);
    let done = ["done"; 2];
    let refused =
        "the lane of this key is not waiting for this decision: look at its state (NotHalted)";
    let in_flight =
        "the head of the lane is in flight, or about to be: try again when it has ended (InFlight)";
    // What happens to them if nothing is decided.
    let anyway = match state {
        State::Refused => ["dead-lettered", "done"],
        _ => done,
    };
    match (state, operation) {
        (State::Absent | State::PausedEmpty, Purge) => said("0", done),
        (State::Ready | State::Running, Purge) => said("1", ["done", "purged"]),
        (_, Purge) => said("2", ["purged"; 2]),

        (State::Ready | State::Running, Skip | Replace | RetryNow) => said(in_flight, done),
        (State::Absent, _) => said(refused, done),
        (State::PausedEmpty, Skip | Replace | RetryNow) => said(refused, done),

        (State::Halted, Resume) => said("ok", done),
        (state, Resume) if state.is_paused() => said("ok", done),
        (_, Resume) => said(refused, anyway),

        (State::Backoff | State::Refused, RetryNow) => said("ok", anyway),
        (_, RetryNow) => said(refused, anyway),

        (_, Skip) => said("ok", ["failed", "done"]),
        (_, Replace) => said("ok", done),
    }
}

#[tokio::test(start_paused = true)]
async fn each_operation_in_each_state() {
    for state in State::ALL {
        for operation in OPERATIONS {
            let case = format!("{operation:?} of a lane that is {state:?}");
            let (recorder, dispatcher, receipts) = arrange(state).await;
            let lane = dispatcher.lane(&1);
            let refusal = |error: LaneError| format!("{error:?}");
            let unit =
                |answer: Result<(), LaneError>| answer.map_or_else(refusal, |()| "ok".to_owned());
            let answer = match operation {
                Resume => unit(lane.resume()),
                Skip => unit(lane.skip()),
                Replace => match lane.replace(Message::new(1, 3)) {
                    Ok(old) => {
                        assert_eq!(old, Message::new(1, 1), "{case}");
                        "ok".to_owned()
                    }
                    Err(error) => {
                        let said = format!("{error:?}");
                        assert_eq!(error.into_inner(), Message::new(1, 3));
                        said
                    }
                },
                Purge => lane.purge().to_string(),
                RetryNow => unit(lane.retry_now()),
            };
            let (said, words) = expected(state, operation);
            assert_eq!(answer, said, "{case}");
            settle().await;
            let is_paused = state.is_paused() && operation != Resume;
            assert_eq!(dispatcher.stats().paused, usize::from(is_paused), "{case}");
            check_waits(&dispatcher, &[1]);
            let before = recorder.calls().len();
            if is_paused {
                at(&recorder, 50).await;
                assert_eq!(recorder.calls().len(), before, "{case}: it is paused");
            }
            for _ in 0..2 {
                let _ = lane.resume();
                settle().await;
            }
            let replaced = operation == Replace && said == "ok";
            let report = within_years(async { dispatcher.drain().await }).await;
            recorder.judge(&dispatcher, &report, CAPACITY);
            let mut told = Vec::new();
            for (n, receipt) in receipts.into_iter().enumerate() {
                let answer = receipt.await;
                if replaced && n == 0 {
                    assert_eq!(answer, Ok(3), "{case}");
                }
                told.push(outcome(&answer));
            }
            assert_eq!(told, words[..told.len()], "{case}");
            assert_eq!(report.handed_back, 0, "{case}");
            let discarded = words[..told.len()]
                .iter()
                .filter(|word| ["failed", "purged"].contains(word));
            assert_eq!(report.discarded, discarded.count() as u64, "{case}");
        }
    }
}

/// A pause in each state: nothing starts; a resume, and everything is as it was.
#[tokio::test(start_paused = true)]
async fn a_pause_in_each_state() {
    for state in State::ALL {
        let (recorder, dispatcher, receipts) = arrange(state).await;
        let lane = dispatcher.lane(&1);
        lane.pause();
        let calls = recorder.calls();
        at(&recorder, 20 * 3_600_000).await;
        let new: Vec<_> = recorder.calls().drain(calls.len()..).collect();
        // A letter is no start of a handler.
        assert_eq!(new, [], "{state:?}");
        assert_eq!(dispatcher.stats().paused, 1, "{state:?}");
        for _ in 0..2 {
            let _ = lane.resume();
            settle().await;
        }
        at(&recorder, 50 * 3_600_000).await;
        assert_eq!(dispatcher.stats().lanes, 0, "{state:?}");
        let expires = state == State::Called;
        for (n, receipt) in receipts.into_iter().enumerate() {
            let word = outcome(&receipt.await);
            match (state, n) {
                (State::Refused, 0) => assert_eq!(word, "dead-lettered"),
                _ if expires => assert_eq!(word, "expired"),
                _ => assert_eq!(word, "done", "{state:?}"),
            }
        }
        recorder.finish(dispatcher).await;
    }
}

/// Over and over, in each state: the operations leave nothing uncounted.
#[tokio::test(start_paused = true)]
async fn each_pair_of_operations_in_each_state() {
    for state in State::ALL {
        for first in OPERATIONS {
            for second in OPERATIONS {
                let (recorder, dispatcher, receipts) = arrange(state).await;
                let lane = dispatcher.lane(&1);
                for (n, operation) in [first, second].into_iter().enumerate() {
                    match operation {
                        Resume => drop(lane.resume()),
                        Skip => drop(lane.skip()),
                        Replace => drop(lane.replace(Message::new(1, 3 + n as u64))),
                        Purge => drop(lane.purge()),
                        RetryNow => drop(lane.retry_now()),
                    }
                }
                let report = within_years(async { dispatcher.drain().await }).await;
                recorder.judge(&dispatcher, &report, CAPACITY);
                for receipt in receipts {
                    assert!(
                        PLAIN_OUTCOMES.contains(&outcome(&receipt.await)),
                        "{state:?}: {first:?}, {second:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retry_now_needs_no_budget() {
    for budget in [false, true] {
        let recorder = Recorder::new();
        let mut builder = dispatcher().retry(Retry::fixed(10 * MS).max_attempts(2));
        if budget {
            builder = builder.retry_budget(RetryBudget::new().ratio(0.0).min_per_second(1));
        }
        let dispatcher = builder
            .spawn(recorder.handler(|_, attempt| {
                if attempt == 1 {
                    Act::error()
                } else {
                    Act::ok()
                }
            }))
            .unwrap();
        for key in 1..=3 {
            send_all(&dispatcher, key, [key]).await;
        }
        at(&recorder, 5).await;
        dispatcher.lane(&1).retry_now().unwrap();
        settle().await;
        assert_eq!(recorder.times()[3..], [(5, 1)]);
        assert_eq!(dispatcher.stats().backing_off, 2);
        at(&recorder, 50).await;
        // The budget has let one of them go; an operator lets the other.
        assert_eq!(dispatcher.stats().postponed, u64::from(budget));
        if budget {
            let waits = [2, 3]
                .into_iter()
                .find(|key| dispatcher.inspect(key).is_some())
                .unwrap();
            dispatcher.lane(&waits).retry_now().unwrap();
        }
        settle().await;
        let stats = dispatcher.stats();
        assert_eq!((stats.done, stats.retries), (3, 3), "budget: {budget}");
        at(&recorder, 5_000).await;
        assert_eq!(
            (dispatcher.stats().backing_off, dispatcher.stats().retries),
            (0, 3)
        );
        recorder.finish(dispatcher).await;
    }
}

/// One after the other, the whole lane is skipped; its receipts say so, in their order.
#[tokio::test(start_paused = true)]
async fn a_lane_is_skipped_to_its_end() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    let lane = dispatcher.lane(&1);
    lane.pause();
    let receipts = submit_all(&dispatcher, 1, 1..=3).await;
    settle().await;
    for (n, receipt) in receipts.into_iter().enumerate() {
        assert_eq!(lane.inspect().unwrap().depth, 3 - n);
        lane.skip().unwrap();
        let error = receipt.await.unwrap_err();
        assert_eq!(error.to_string(), "given up: an operator skipped it");
    }
    assert_eq!(lane.skip(), Err(LaneError::NotHalted(())));
    assert_eq!(dispatcher.stats().paused, 1);
    lane.resume().unwrap();
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.discarded, recorder.calls().len()), (3, 0));
}

/// A message that waits behind a batch in the handler is purged, and what fails comes back to an
/// empty lane.
#[tokio::test(start_paused = true)]
async fn a_purge_while_a_batch_is_in_the_handler() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .batch(2, std::time::Duration::ZERO)
        .retry(Retry::fixed(HOUR))
        .spawn_batches(|batch: Vec<Message>| async move {
            tokio::time::sleep(10 * MS).await;
            Err::<Vec<u64>, _>(keylane_testkit::ScriptError::Error(batch[0].id))
        })
        .unwrap();
    let receipts = submit_all(&dispatcher, 1, 1..=4).await;
    settle().await;
    assert_eq!(dispatcher.lane(&1).purge(), 2);
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 2);
    at(&recorder, 20).await;
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 2);
    assert_eq!(dispatcher.lane(&1).purge(), 2);
    for receipt in receipts {
        assert_eq!(outcome(&receipt.await), "purged");
    }
    assert_eq!(dispatcher.stats().lanes, 0);
    recorder.finish(dispatcher).await;
}
