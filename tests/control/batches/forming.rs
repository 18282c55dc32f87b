//! When a batch starts, and with which messages.

use std::time::Duration;

use keylane::Retry;
use keylane_testkit::scenario::{MS, settle};

use super::{Reply, after, batched};
use crate::support::{HOUR, Recorder, at, dispatcher, send_all};

#[tokio::test(start_paused = true)]
async fn up_to_max_messages_of_one_key_in_order() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, Duration::ZERO), |_, _| {
        after(10, Reply::Done)
    });
    send_all(&dispatcher, 1, [1]).await;
    settle().await;
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

/// A batch is as large as it can be when it starts, and not when its lane became ready.
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
