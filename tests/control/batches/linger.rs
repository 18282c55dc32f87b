//! How long the first message of a batch waits for more.

use std::time::Duration;

use keylane::Overflow;
use keylane::watching::LaneState;
use keylane_testkit::scenario::{MS, settle, within};

use super::{Reply, batched};
use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, send_all};

#[tokio::test(start_paused = true)]
async fn the_linger_is_exact_and_ends_when_the_batch_is_full() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, 100 * MS), |_, _| {
        Reply::Done
    });
    at(&recorder, 10).await;
    send_all(&dispatcher, 1, [1]).await;
    settle().await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(view.state, LaneState::Lingering { due_in: 100 * MS });
    assert_eq!(dispatcher.stats().in_flight, 0);
    at(&recorder, 60).await;
    send_all(&dispatcher, 1, [2]).await;
    at(&recorder, 500).await;
    send_all(&dispatcher, 1, 3..=5).await;
    settle().await;
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
    settle().await;
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
    settle().await;
    assert_eq!(recorder.now(), 0);
    assert_eq!(recorder.ids(), [1, 2, 3, 4, 5, 6, 7, 8]);
    recorder.finish(dispatcher).await;
}
