//! What becomes of the messages of a batch that failed, whole or in part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::watching::LaneState;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_testkit::scenario::{MS, Message, SECOND, outcome, settle, within};
use keylane_testkit::{History, LetterBox, ScriptError};

use super::{Reply, after, batched};
use crate::support::{Recorder, at, dispatcher, send_all, submit_all};

/// Those that failed come first, in their order, then what arrived meanwhile.
#[tokio::test(start_paused = true)]
async fn a_partial_failure_keeps_the_order() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, Duration::ZERO)
        .retry(Retry::fixed(50 * MS).max_attempts(3));
    let dispatcher = batched(&recorder, builder, |ids, attempt| match (ids, attempt) {
        ([1], 1) => after(5, Reply::Done),
        ([2, 3, 4, 5], 1) => after(10, Reply::Each(vec![true, false, true, false])),
        _ => Reply::Done,
    });
    send_all(&dispatcher, 1, [1]).await;
    settle().await;
    send_all(&dispatcher, 1, 2..=5).await;
    at(&recorder, 10).await;
    send_all(&dispatcher, 1, 6..=9).await;
    at(&recorder, 30).await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(view.depth, 6);
    assert!(
        matches!(&view.state, LaneState::Backoff { next_attempt: 2, why, .. } if why.contains("scripted error of id 3")),
        "{view:?}"
    );
    let report = recorder.finish(dispatcher).await;
    assert_eq!(
        recorder.batches(),
        [
            vec![1],
            vec![2, 3, 4, 5],
            vec![3],
            vec![5, 6, 7, 8],
            vec![9]
        ]
    );
    assert_eq!(report.done, 9);
}

/// The first is charged and tried alone, the others wait as if they had not been started.
#[tokio::test(start_paused = true)]
async fn a_whole_failure_tries_the_head_alone() {
    for reply in [Reply::Fail, Reply::Panic, Reply::Never] {
        let recorder = Recorder::new();
        let builder = dispatcher()
            .batch(3, Duration::ZERO)
            .attempt_timeout(SECOND)
            .retry(Retry::fixed(50 * MS).max_attempts(2));
        let dispatcher = batched(&recorder, builder, {
            let reply = reply.clone();
            move |ids, _| match ids {
                [0] => after(5, Reply::Done),
                [1, ..] => reply.clone(),
                _ => Reply::Done,
            }
        });
        send_all(&dispatcher, 1, [0]).await;
        settle().await;
        let receipts = submit_all(&dispatcher, 1, 1..=5).await;
        let mut words = Vec::new();
        for receipt in receipts {
            words.push(outcome(&receipt.await));
        }
        assert_eq!(
            words,
            ["failed", "done", "done", "done", "done"],
            "{reply:?}"
        );
        let calls: Vec<_> = recorder
            .calls()
            .into_iter()
            .map(|c| (c.ids, c.attempt))
            .collect();
        assert_eq!(
            calls,
            [
                (vec![0], 1),
                (vec![1, 2, 3], 1),
                (vec![1], 2),
                (vec![2, 3, 4], 1),
                (vec![5], 1)
            ],
            "{reply:?}"
        );
        let stats = dispatcher.stats();
        assert_eq!((stats.failures, stats.retries), (2, 1), "{reply:?}");
        recorder.finish(dispatcher).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_one_by_one_in_order() {
    let recorder = Recorder::new();
    let letters = LetterBox::new(&History::new());
    let builder = dispatcher()
        .batch(3, Duration::ZERO)
        .retry(Retry::fixed(MS).max_attempts(2))
        .on_exhausted(OnExhausted::dead_letter(
            letters.sink(|message: &Message| message.id),
        ));
    let dispatcher = batched(&recorder, builder, |ids, _| {
        let bad = ids.iter().map(|id| id % 2 == 0);
        Reply::Each(bad.collect())
    });
    send_all(&dispatcher, 1, 1..=6).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, report.dead_lettered), (3, 3));
    let letters = letters.letters();
    let letters: Vec<_> = letters
        .iter()
        .map(|letter| (letter.id, letter.attempts))
        .collect();
    assert_eq!(letters, [(1, 2), (3, 2), (5, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_halts_at_its_first_failure_and_is_resumed() {
    let recorder = Recorder::new();
    let works = Arc::new(AtomicUsize::new(0));
    let builder = dispatcher()
        .batch(3, Duration::ZERO)
        .on_exhausted(OnExhausted::Halt);
    let dispatcher = batched(&recorder, builder, {
        let works = Arc::clone(&works);
        move |_, _| match works.load(Ordering::Relaxed) {
            0 => Reply::Fail,
            _ => Reply::Done,
        }
    });
    send_all(&dispatcher, 1, 1..=4).await;
    settle().await;
    let view = dispatcher.inspect(&1).unwrap();
    assert!(
        matches!(view.state, LaneState::Halted { attempts: 1, .. }),
        "{view:?}"
    );
    assert_eq!(view.depth, 4);
    works.store(1, Ordering::Relaxed);
    dispatcher.lane(&1).resume().unwrap();
    let report = recorder.finish(dispatcher).await;
    assert_eq!(recorder.batches(), [vec![1, 2, 3], vec![1], vec![2, 3, 4]]);
    assert_eq!(report.done, 4);
}

/// What a clone that panics leaves unhandled is dropped without harm, whatever its drop does.
#[tokio::test(start_paused = true)]
async fn a_message_whose_clone_panics_fails_its_batch() {
    struct Fragile(u64, Arc<AtomicUsize>);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            if self.0 == 2 && self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                std::panic::resume_unwind(Box::new("in clone"));
            }
            Self(self.0 + 100, Arc::clone(&self.1))
        }
    }
    impl Drop for Fragile {
        fn drop(&mut self) {
            if self.0 == 101 && self.1.fetch_add(1, Ordering::Relaxed) == 1 {
                std::panic::resume_unwind(Box::new("in drop"));
            }
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let fragile = Dispatcher::builder(|_: &Fragile| 1_u64)
        .batch(4, Duration::ZERO)
        .retry(Retry::<ScriptError>::fixed(MS).max_attempts(2))
        .spawn_batches(|_: Vec<Fragile>| async move { Ok::<(), ScriptError>(()) })
        .unwrap();
    for id in 1..=3 {
        fragile.send(Fragile(id, Arc::clone(&count))).await.unwrap();
    }
    at(&Recorder::new(), 100).await;
    let report = within(async { fragile.drain().await }).await;
    assert_eq!(
        (report.accepted, report.done, report.interrupted),
        (3, 3, 0),
        "{report:?}"
    );
}
