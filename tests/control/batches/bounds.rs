//! What a batch counts, in messages and in bytes.

use std::time::Duration;

use keylane::{Overflow, Retry};
use keylane_testkit::scenario::{MS, Message, SECOND, outcome, settle};

use super::{Reply, after, batched};
use crate::support::{HOUR, Recorder, at, dispatcher, send_all};

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
    settle().await;
    assert!(!sender.is_finished(), "four are there");
    // The head waits an hour for its retry; three have settled.
    at(&recorder, 20).await;
    let sent = tokio::time::timeout(MS, &mut sender).await;
    assert!(sent.is_ok(), "there is room again");
    recorder.finish(dispatcher).await;
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
