//! `.batch(max, linger)`: several messages of one key in one handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::batch::{Answers, BatchAnswer};
use keylane::error::{Failure, ReceiptError};
use keylane::watching::LaneState;
use keylane::{Builder, Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::ScriptError;
use keylane_testkit::scenario::{MS, Message, SECOND, ScriptedDispatcher, outcome};

use crate::support::{
    Act, CAPACITY, HOUR, Recorder, at, dispatcher, perform, quiet, send_all, submit_all, within,
};

/// What a handler does with a batch.
#[derive(Clone, Debug)]
enum Reply {
    Done,
    /// All fail with the number of the first message.
    Fail,
    Panic,
    Never,
    /// One answer each as told, perhaps too few or too many.
    Each(Vec<bool>),
    /// After so many milliseconds.
    After(u64, Box<Reply>),
}

/// What it answers: any of the three forms.
struct Said(Answers<u64, ScriptError>);

impl BatchAnswer for Said {
    type Output = u64;
    type Error = ScriptError;

    fn into_answers(self, _: usize) -> Answers<u64, ScriptError> {
        self.0
    }
}

fn batched(
    recorder: &Recorder,
    builder: Builder<
        u64,
        Message,
        ScriptError,
        impl Fn(&Message) -> Option<u64> + Send + Sync + 'static,
    >,
    reply: impl Fn(&[u64], u32) -> Reply + Send + Sync + 'static,
) -> ScriptedDispatcher {
    let (recorder, reply) = (recorder.clone(), Arc::new(reply));
    builder
        .spawn_batches(move |context: Context<u64>, batch: Vec<Message>| {
            let (recorder, reply) = (recorder.clone(), Arc::clone(&reply));
            async move {
                let ids: Vec<_> = batch.iter().map(|message| message.id).collect();
                assert!(
                    batch
                        .iter()
                        .all(|message| message.key == context.key().copied())
                );
                let _running = recorder.begin(batch[0].key, ids.clone(), context.attempt());
                let mut reply = reply(&ids, context.attempt());
                if let Reply::After(ms, then) = reply {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    reply = *then;
                }
                Said(match reply {
                    Reply::Fail => Err(ScriptError::Error(ids[0])),
                    Reply::Panic => perform(Act::Panic, 0).await.map(|()| Vec::new()),
                    Reply::Never => perform(Act::Never, 0).await.map(|()| Vec::new()),
                    Reply::Each(each) => {
                        let ids = ids.into_iter().chain(std::iter::repeat(0));
                        let each = each.into_iter().zip(ids);
                        Ok(each
                            .map(|(ok, id)| {
                                if ok {
                                    Ok(id)
                                } else {
                                    Err(ScriptError::Error(id))
                                }
                            })
                            .collect())
                    }
                    Reply::Done | Reply::After(..) => Ok(ids.into_iter().map(Ok).collect()),
                })
            }
        })
        .unwrap()
}

fn after(ms: u64, reply: Reply) -> Reply {
    Reply::After(ms, Box::new(reply))
}

#[tokio::test(start_paused = true)]
async fn up_to_max_messages_of_one_key_in_order() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, Duration::ZERO), |_, _| {
        after(10, Reply::Done)
    });
    send_all(&dispatcher, 1, [1]).await;
    quiet().await;
    send_all(&dispatcher, 1, 2..=8).await;
    send_all(&dispatcher, 2, [21, 22]).await;
    at(&recorder, 5).await;
    // The batch in the handler is a part of the lane.
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 8);
    at(&recorder, 15).await;
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 7);
    let stats = dispatcher.stats();
    assert_eq!((stats.in_flight, stats.done), (1, 3));
    let report = recorder.finish(dispatcher).await;
    let mut batches = recorder.batches();
    batches.retain(|ids| ids[0] < 20);
    assert_eq!(batches, [vec![1], vec![2, 3, 4], vec![5, 6, 7], vec![8]]);
    assert_eq!(report.done, 10);
}

#[tokio::test(start_paused = true)]
async fn the_three_forms_of_an_answer() {
    let units = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            if batch[0].id == 3 {
                Err(ScriptError::Error(3))
            } else {
                Ok(())
            }
        })
        .unwrap();
    let mut receipts = Vec::new();
    for id in 1..=4 {
        receipts.push(units.submit(Message::new(id % 2, id)).await.unwrap());
    }
    let mut failed = 0;
    for receipt in receipts {
        failed += u32::from(receipt.await.is_err());
    }
    assert_eq!(failed, 0, "1 and 3 are one batch, and 1 is its first");
    let recorder = Recorder::new();
    recorder.judge(&units, &units.drain().await, CAPACITY);

    let answers = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            Ok::<Vec<u64>, ScriptError>(batch.iter().map(|message| message.id * 10).collect())
        })
        .unwrap();
    for (n, receipt) in (1..).zip(submit_all(&answers, 1, 1..=4).await) {
        assert_eq!(receipt.await.unwrap(), n * 10);
    }
    recorder.judge(&answers, &answers.drain().await, CAPACITY);

    let each = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            let odd = |message: &Message| {
                if message.id % 2 == 1 {
                    Ok(message.id)
                } else {
                    Err(ScriptError::Error(message.id))
                }
            };
            batch.iter().map(odd).collect::<Vec<_>>()
        })
        .unwrap();
    let mut words = Vec::new();
    for receipt in submit_all(&each, 1, 1..=4).await {
        words.push(receipt.await.map_err(|error| error.to_string()));
    }
    let failed = |id: u64| Err(format!("given up: the handler failed: Error({id})"));
    // Without retries nothing is kept: each failure is its own, and final.
    assert_eq!(words, [Ok(1), failed(2), Ok(3), failed(4)]);
    let report = each.drain().await;
    assert_eq!((report.done, report.discarded), (2, 2));
    recorder.judge(&each, &report, CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn too_few_answers_are_failures_and_too_many_are_dropped() {
    let recorder = Recorder::new();
    let dispatcher = batched(
        &recorder,
        dispatcher().batch(4, Duration::ZERO),
        |ids, _| Reply::Each(vec![true; if ids[0] < 10 { 1 } else { 9 }]),
    );
    let few = submit_all(&dispatcher, 1, 1..=3).await;
    let many = submit_all(&dispatcher, 2, 11..=13).await;
    let mut told = Vec::new();
    for receipt in few {
        told.push(receipt.await);
    }
    assert_eq!(told[0], Ok(1));
    for told in &told[1..] {
        assert_eq!(*told, Err(ReceiptError::Failed(Failure::NoAnswer)));
    }
    for receipt in many {
        assert_eq!(outcome(&receipt.await), "done");
    }
    recorder.finish(dispatcher).await;
}

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
    quiet().await;
    send_all(&dispatcher, 1, 2..=5).await;
    at(&recorder, 10).await;
    send_all(&dispatcher, 1, 6..=9).await;
    at(&recorder, 30).await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(view.depth, 6);
    assert!(
        matches!(&view.state, LaneState::Backoff { next_attempt: 2, why, .. } if why.contains("Error(3)")),
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
        quiet().await;
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

/// Without anything that keeps messages, a batch that fails is over, and each receipt says why.
#[tokio::test(start_paused = true)]
async fn without_retries_a_batch_fails_together() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, Duration::ZERO), |_, _| {
        Reply::Fail
    });
    let receipts = submit_all(&dispatcher, 1, 1..=3).await;
    let mut told = Vec::new();
    for receipt in receipts {
        told.push(receipt.await.unwrap_err());
    }
    assert_eq!(
        told[0],
        ReceiptError::Failed(Failure::Error(ScriptError::Error(1)))
    );
    for told in &told[1..] {
        let ReceiptError::Failed(Failure::WithBatch(why)) = told else {
            panic!("{told:?}")
        };
        assert_eq!(why, "the handler failed: Error(1)");
    }
    let report = recorder.finish(dispatcher).await;
    assert_eq!(report.discarded, 3);
}

#[tokio::test(start_paused = true)]
async fn dead_letters_one_by_one_in_order() {
    let recorder = Recorder::new();
    let letters: Arc<std::sync::Mutex<Vec<(u64, u32)>>> = Arc::default();
    let sink = Letters(Arc::clone(&letters));
    let builder = dispatcher()
        .batch(3, Duration::ZERO)
        .retry(Retry::fixed(MS).max_attempts(2))
        .on_exhausted(OnExhausted::DeadLetter(Arc::new(sink)));
    let dispatcher = batched(&recorder, builder, |ids, _| {
        let bad = ids.iter().map(|id| id % 2 == 0);
        Reply::Each(bad.collect())
    });
    send_all(&dispatcher, 1, 1..=6).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, report.dead_lettered), (3, 3));
    assert_eq!(*letters.lock().unwrap(), [(1, 2), (3, 2), (5, 2)]);
}

struct Letters(Arc<std::sync::Mutex<Vec<(u64, u32)>>>);

#[keylane::async_trait]
impl keylane::DeadLetterSink<u64, Message, ScriptError> for Letters {
    async fn accept(
        &self,
        letter: &keylane::DeadLetter<u64, Message, ScriptError>,
    ) -> Result<(), keylane::error::BoxError> {
        self.0
            .lock()
            .unwrap()
            .push((letter.message.id, letter.attempts));
        Ok(())
    }
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
    quiet().await;
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

/// A halted batch that nobody decides about comes back whole, in order.
#[tokio::test(start_paused = true)]
async fn a_halted_batch_is_handed_back() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(3, Duration::ZERO)
        .on_exhausted(OnExhausted::Halt);
    let dispatcher = batched(&recorder, builder, |_, _| Reply::Fail);
    send_all(&dispatcher, 1, 1..=4).await;
    quiet().await;
    let report = recorder.finish(dispatcher).await;
    let back: Vec<_> = report
        .returned
        .iter()
        .map(|back| (back.message.as_ref().unwrap().id, back.attempts))
        .collect();
    assert_eq!(back, [(1, 1), (2, 1), (3, 1), (4, 0)]);
}

#[tokio::test(start_paused = true)]
async fn the_linger_is_exact_and_ends_when_the_batch_is_full() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, 100 * MS), |_, _| {
        Reply::Done
    });
    at(&recorder, 10).await;
    send_all(&dispatcher, 1, [1]).await;
    quiet().await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(view.state, LaneState::Lingering { due_in: 100 * MS });
    assert_eq!(dispatcher.stats().in_flight, 0);
    at(&recorder, 60).await;
    send_all(&dispatcher, 1, [2]).await;
    at(&recorder, 500).await;
    send_all(&dispatcher, 1, 3..=5).await;
    quiet().await;
    assert_eq!(recorder.batches(), [vec![1, 2], vec![3, 4, 5]]);
    assert_eq!(recorder.times(), [(110, 1), (500, 3)]);
    // The next one lingers anew.
    send_all(&dispatcher, 1, [6]).await;
    at(&recorder, 650).await;
    assert_eq!(recorder.times()[2], (600, 6));
    recorder.finish(dispatcher).await;
}

/// Nothing more comes, so nothing is waited for.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_linger() {
    for linger in [HOUR, Duration::MAX] {
        let recorder = Recorder::new();
        let dispatcher = batched(&recorder, dispatcher().batch(3, linger), |_, _| Reply::Done);
        send_all(&dispatcher, 1, [1]).await;
        send_all(&dispatcher, 2, [2, 3]).await;
        at(&recorder, 1_000).await;
        assert_eq!(recorder.calls(), []);
        let report = recorder.finish(dispatcher).await;
        assert_eq!(report.done, 3);
        assert_eq!(
            recorder.times().iter().map(|(at, _)| *at).max(),
            Some(1_000),
            "{linger:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_hands_back_what_lingers() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, HOUR), |_, _| Reply::Done);
    send_all(&dispatcher, 1, [1, 2]).await;
    quiet().await;
    let report = dispatcher.close().await;
    recorder.judge(&dispatcher, &report, CAPACITY);
    assert_eq!((report.handed_back, recorder.now()), (2, 0));
}

/// A lane that can take no more does not wait for more.
#[tokio::test(start_paused = true)]
async fn a_full_lane_does_not_linger() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(10, HOUR)
        .lane_capacity(4, Overflow::Wait);
    let dispatcher = batched(&recorder, builder, |_, _| Reply::Done);
    within(send_all(&dispatcher, 1, 1..=8)).await;
    quiet().await;
    assert_eq!(recorder.now(), 0);
    assert_eq!(recorder.ids(), [1, 2, 3, 4, 5, 6, 7, 8]);
    recorder.finish(dispatcher).await;
}

/// The batch that is in the handler counts: the lane is as deep as it is said to be.
#[tokio::test(start_paused = true)]
async fn the_lane_capacity_counts_the_batch_in_the_handler() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, Duration::ZERO)
        .lane_capacity(4, Overflow::DropOldest)
        .retry(Retry::fixed(SECOND));
    let dispatcher = batched(&recorder, builder, |_, attempt| match attempt {
        1 => after(10, Reply::Fail),
        _ => Reply::Done,
    });
    send_all(&dispatcher, 1, 1..=4).await;
    at(&recorder, 5).await;
    assert_eq!(recorder.batches(), [vec![1, 2, 3, 4]]);
    let receipt = dispatcher.submit(Message::new(1, 5)).await.unwrap();
    assert_eq!(
        outcome(&receipt.await),
        "dropped",
        "nothing behind the batch can make room"
    );
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 4);
    dispatcher.abort().await;
}

#[tokio::test(start_paused = true)]
async fn senders_of_a_full_lane_are_let_in_when_a_batch_has_settled() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, Duration::ZERO)
        .lane_capacity(4, Overflow::Wait)
        .retry(Retry::fixed(HOUR));
    let dispatcher = batched(&recorder, builder, |ids, _| match ids {
        [1, 2, 3, 4] => after(10, Reply::Each(vec![false, true, true, true])),
        _ => Reply::Done,
    });
    send_all(&dispatcher, 1, 1..=4).await;
    at(&recorder, 5).await;
    let mut sender = tokio::spawn({
        let dispatcher = dispatcher.clone();
        async move { send_all(&dispatcher, 1, [5]).await }
    });
    quiet().await;
    assert!(!sender.is_finished(), "four are there");
    // The head waits an hour for its retry; three have settled.
    at(&recorder, 20).await;
    let sent = tokio::time::timeout(MS, &mut sender).await;
    assert!(sent.is_ok(), "there is room again");
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_interrupts_the_whole_batch() {
    for keeps in [false, true] {
        let recorder = Recorder::new();
        let mut builder = dispatcher().batch(3, Duration::ZERO);
        if keeps {
            builder = builder.retry(Retry::fixed(MS));
        }
        let dispatcher = batched(&recorder, builder, |_, _| Reply::Never);
        let receipts = submit_all(&dispatcher, 1, 1..=2).await;
        send_all(&dispatcher, 1, 3..=5).await;
        quiet().await;
        assert_eq!(recorder.batches(), [vec![1, 2, 3]]);
        let report = dispatcher.abort().await;
        recorder.judge(&dispatcher, &report, CAPACITY);
        assert_eq!((report.handed_back, report.interrupted), (5, 3));
        for (id, receipt) in (1..).zip(receipts) {
            let kept = keeps.then(|| Message::new(1, id));
            assert_eq!(receipt.await, Err(ReceiptError::Interrupted(kept)));
        }
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|back| (back.message.clone(), back.attempts, back.interrupted))
            .collect();
        let third = keeps.then(|| Message::new(1, 3));
        assert_eq!(
            back,
            [
                (third, 1, true),
                (Some(Message::new(1, 4)), 0, false),
                (Some(Message::new(1, 5)), 0, false)
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_finishes_the_batch_in_the_handler() {
    for good in [true, false] {
        let recorder = Recorder::new();
        let builder = dispatcher()
            .batch(3, Duration::ZERO)
            .retry(Retry::fixed(MS));
        let dispatcher = batched(&recorder, builder, move |_, _| {
            after(10, if good { Reply::Done } else { Reply::Fail })
        });
        send_all(&dispatcher, 1, 1..=5).await;
        quiet().await;
        let report = dispatcher.close().await;
        recorder.judge(&dispatcher, &report, CAPACITY);
        let done = if good { 3 } else { 0 };
        assert_eq!((report.done, report.handed_back), (done, 5 - done));
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|back| back.message.as_ref().unwrap().id)
            .collect();
        assert_eq!(back, (done + 1..=5).collect::<Vec<_>>());
        assert_eq!(recorder.calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn keyless_messages_are_batches_of_one() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, HOUR)
        .retry(Retry::fixed(10 * MS).max_attempts(2));
    let dispatcher = batched(&recorder, builder, |ids, attempt| match (ids, attempt) {
        ([2], 1) => Reply::Fail,
        _ => Reply::Done,
    });
    send_all(&dispatcher, None, 1..=3).await;
    at(&recorder, 5).await;
    let mut batches = recorder.batches();
    batches.sort();
    assert_eq!(batches, [vec![1], vec![2], vec![3]]);
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, recorder.now()), (3, 10));
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_batch_are_given_back() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, Duration::ZERO)
        .capacity_bytes(100, |message| message.id as usize)
        .retry(Retry::fixed(10 * MS).max_attempts(2));
    let dispatcher = batched(&recorder, builder, |ids, _| match ids {
        [10, 20, 30, 40] => after(10, Reply::Each(vec![true, false, true, false])),
        _ => Reply::Done,
    });
    send_all(&dispatcher, 1, [10, 20, 30, 40]).await;
    assert!(dispatcher.try_send(Message::new(2, 1)).is_err());
    at(&recorder, 200).await;
    assert_eq!(dispatcher.stats().done, 4);
    dispatcher.try_send(Message::new(2, 100)).unwrap();
    recorder.finish(dispatcher).await;
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

/// A batch is as large as it can be when it starts, and not when somebody looked.
#[tokio::test(start_paused = true)]
async fn a_batch_is_put_together_when_it_starts() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(4, Duration::ZERO)
        .concurrency(1)
        .quantum(1);
    let dispatcher = batched(&recorder, builder, |ids, _| match ids[0] {
        1 | 21 => after(10, Reply::Done),
        _ => Reply::Done,
    });
    send_all(&dispatcher, 1, [1, 2, 3, 4]).await;
    send_all(&dispatcher, 1, [5]).await;
    send_all(&dispatcher, 2, [21]).await;
    at(&recorder, 15).await;
    // Key 1 waits behind key 2 for the one runner, and more of it comes.
    send_all(&dispatcher, 1, [6]).await;
    at(&recorder, 50).await;
    assert_eq!(recorder.batches(), [vec![1, 2, 3, 4], vec![21], vec![5, 6]]);
    recorder.finish(dispatcher).await;
}
