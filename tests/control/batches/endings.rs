//! The end of a dispatcher, with batches in their handlers and halted.

use std::time::Duration;

use keylane::error::ReceiptError;
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{MS, Message, settle};

use super::{Reply, after, batched};
use crate::support::{CAPACITY, Recorder, dispatcher, send_all, submit_all};

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
        settle().await;
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
        settle().await;
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

/// A halted batch without a decision comes back whole, in order.
#[tokio::test(start_paused = true)]
async fn a_halted_batch_is_handed_back() {
    let recorder = Recorder::new();
    let builder = dispatcher()
        .batch(3, Duration::ZERO)
        .on_exhausted(OnExhausted::Halt);
    let dispatcher = batched(&recorder, builder, |_, _| Reply::Fail);
    send_all(&dispatcher, 1, 1..=4).await;
    settle().await;
    let report = recorder.finish(dispatcher).await;
    let back: Vec<_> = report
        .returned
        .iter()
        .map(|back| (back.message.as_ref().unwrap().id, back.attempts))
        .collect();
    assert_eq!(back, [(1, 1), (2, 1), (3, 1), (4, 0)]);
}
