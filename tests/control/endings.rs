//! The end, in each state of a lane.

use std::future::IntoFuture;

use keylane::Report;
use keylane_testkit::scenario::{MS, Message, ScriptedDispatcher, outcome, paused};

use crate::states::{State, arrange};
use crate::support::{CAPACITY, PLAIN_OUTCOMES, Recorder, at};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Drain,
    Close,
    Abort,
    /// The last handle is dropped.
    Drop,
    /// The runtime is dropped.
    Runtime,
}

/// What becomes of messages 1 and 2.
fn expected(state: State, end: End) -> [&'static str; 2] {
    let (back, done) = ("handed back", "done");
    match (end, state) {
        (End::Drain | End::Drop, State::Halted) => [back, back],
        (End::Drain | End::Drop, state) if state.is_paused() => [back, back],
        (End::Drain | End::Drop, State::Refused) => ["dead-lettered", done],
        (End::Drain | End::Drop, _) => [done, done],
        (End::Close, State::Running) => [done, back],
        (End::Abort | End::Runtime, State::Running) => ["interrupted", back],
        _ => [back, back],
    }
}

fn judge(recorder: &Recorder, dispatcher: &ScriptedDispatcher, report: &Report<u64, Message>) {
    recorder.judge(dispatcher, report, CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn each_end_in_each_state() {
    for state in State::ALL {
        for end in [End::Drain, End::Close, End::Abort, End::Drop] {
            let (recorder, dispatcher, receipts) = arrange(state).await;
            match end {
                End::Drop => drop(dispatcher),
                End::Drain => judge(&recorder, &dispatcher, &dispatcher.drain().await),
                End::Close => judge(&recorder, &dispatcher, &dispatcher.close().await),
                _ => judge(&recorder, &dispatcher, &dispatcher.abort().await),
            }
            let mut words = Vec::new();
            for receipt in receipts {
                words.push(outcome(&receipt.await));
            }
            let expected = expected(state, end);
            assert_eq!(words, expected[..words.len()], "{end:?} of {state:?}");
        }
    }
}

/// A drain that becomes a close, or meets its deadline, in each state.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_cut_short_in_each_state() {
    for state in State::ALL {
        for close in [false, true] {
            let (recorder, dispatcher, receipts) = arrange(state).await;
            let mut drain = Box::pin(dispatcher.drain().within(50 * MS).into_future());
            if close {
                let _ = tokio::time::timeout(5 * MS, &mut drain).await;
                judge(&recorder, &dispatcher, &dispatcher.close().await);
            } else {
                judge(&recorder, &dispatcher, &drain.await);
            }
            for receipt in receipts {
                assert!(
                    PLAIN_OUTCOMES.contains(&outcome(&receipt.await)),
                    "{state:?}"
                );
            }
            assert!(recorder.now() <= 110, "{state:?} at {}", recorder.now());
        }
    }
}

#[test]
fn the_runtime_is_dropped_in_each_state() {
    for state in State::ALL {
        let runtime = paused();
        let (recorder, dispatcher, receipts) = runtime.block_on(async {
            let arranged = arrange(state).await;
            at(&arranged.0, 20).await;
            arranged
        });
        drop(runtime);
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let report = other.block_on(async { dispatcher.close().await });
        judge(&recorder, &dispatcher, &report);
        let mut words = Vec::new();
        for receipt in receipts {
            words.push(outcome(&other.block_on(receipt)));
        }
        let expected = expected(state, End::Runtime);
        assert_eq!(words, expected[..words.len()], "{state:?}");
    }
}
