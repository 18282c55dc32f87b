//! `send_when`, `submit_when`.

use std::time::Duration;

use keylane::discipline::Delayed;
use keylane::error::SendError;
use keylane::watching::LaneState;
use keylane::{Retry, RetryBudget};
use keylane_testkit::Act;
use keylane_testkit::scenario::{MS, Message, SECOND, outcome, settle, within, within_years};
use tokio::time::Instant;

use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, send_all};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[tokio::test(start_paused = true)]
async fn later_messages_wait() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    send_all(&dispatcher, 1, [1]).await;
    dispatcher
        .send_when(Message::new(1, 2), 100 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 1, [3]).await;
    dispatcher
        .send_when(Message::new(1, 4), Instant::now() + 50 * MS)
        .await
        .unwrap();
    let receipt = dispatcher
        .submit_when(Message::new(1, 5), 300 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 2, [21]).await;
    settle().await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(
        (view.state, view.depth),
        (LaneState::Delayed { due_in: 100 * MS }, 4)
    );
    let stats = dispatcher.stats();
    assert_eq!(
        (stats.in_flight, stats.stalled, stats.capacity_left),
        (0, 4, CAPACITY)
    );
    assert_eq!(receipt.await.unwrap(), 5);
    assert_eq!(
        recorder.times(),
        [(0, 1), (0, 21), (100, 2), (100, 3), (100, 4), (300, 5)]
    );
    recorder.finish(dispatcher).await;
}

/// Plain messages are ready and wait for their runner when the first one comes that may not start yet.
#[tokio::test(start_paused = true)]
async fn the_first_later_message_comes_behind_plain_ones_that_are_ready() {
    let recorder = Recorder::new();
    let handler = recorder.handler(|id, _| match id {
        100 => Act::ok().sleeps(100 * MS),
        _ => Act::ok(),
    });
    let dispatcher = dispatcher()
        .concurrency(1)
        .delayed(Delayed::Wait)
        .spawn(handler)
        .unwrap();
    send_all(&dispatcher, 9, [100]).await;
    settle().await;
    send_all(&dispatcher, 1, [1]).await;
    send_all(&dispatcher, 2, [2]).await;
    send_all(&dispatcher, None, [7]).await;
    settle().await;
    dispatcher
        .send_when(Message::new(1, 3), 50 * MS)
        .await
        .unwrap();
    dispatcher
        .send_when(Message::new(2, 4), 150 * MS)
        .await
        .unwrap();
    dispatcher
        .send_when(Message::new(3, 5), 150 * MS)
        .await
        .unwrap();
    dispatcher
        .send_when(Message::new(None, 8), 150 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 3, [6]).await;
    at(&recorder, 200).await;
    let mut times = recorder.times();
    times.sort_unstable();
    assert_eq!(
        times,
        [
            (0, 100),
            (100, 1),
            (100, 2),
            (100, 3),
            (100, 7),
            (150, 4),
            (150, 5),
            (150, 6),
            (150, 8)
        ]
    );
    let ids = recorder.ids();
    let place = |of: u64| ids.iter().position(|id| *id == of);
    assert!(place(1) < place(3) && place(5) < place(6), "{ids:?}");
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn later_messages_pass() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .delayed(Delayed::Pass)
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    dispatcher
        .send_when(Message::new(1, 1), 100 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 1, [2]).await;
    dispatcher
        .send_when(Message::new(1, 3), 50 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 1, [4]).await;
    settle().await;
    assert_eq!(
        (dispatcher.inspect(&1), dispatcher.stats().lanes),
        (None, 0)
    );
    at(&recorder, 200).await;
    assert_eq!(recorder.times(), [(0, 2), (0, 4), (50, 3), (100, 1)]);
    recorder.finish(dispatcher).await;
}

/// It takes its place when its time has come, behind what is parked by then.
#[tokio::test(start_paused = true)]
async fn one_that_was_passed_comes_behind_what_is_parked() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .delayed(Delayed::Pass)
        .spawn(recorder.handler(|_, _| Act::ok().sleeps(60 * MS)))
        .unwrap();
    dispatcher
        .send_when(Message::new(1, 1), 50 * MS)
        .await
        .unwrap();
    send_all(&dispatcher, 1, [2, 3]).await;
    at(&recorder, 55).await;
    send_all(&dispatcher, 1, [4]).await;
    recorder.finish(dispatcher).await;
    assert_eq!(recorder.times(), [(0, 2), (60, 3), (120, 1), (180, 4)]);
}

/// Of those with the same time the first accepted is the first, and an earlier time is earlier.
#[tokio::test(start_paused = true)]
async fn ten_thousand_at_once_in_their_order() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .delayed(delayed)
            .lane_capacity(20_000, keylane::Overflow::Wait)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        let due = Instant::now() + SECOND;
        for id in 0..10_000 {
            dispatcher
                .send_when(Message::new(id % 7, id), due)
                .await
                .unwrap();
        }
        settle().await;
        assert_eq!(recorder.calls(), []);
        assert_eq!(
            (dispatcher.stats().stalled, dispatcher.stats().capacity_left),
            (10_000, CAPACITY)
        );
        let report = recorder.finish(dispatcher).await;
        assert_eq!((report.done, recorder.now()), (10_000, 1_000));
        for key in 0..7 {
            let mut ids = recorder.ids();
            ids.retain(|id| id % 7 == key);
            assert!(ids.is_sorted(), "{delayed:?}: key {key}");
        }
        let stats = recorder.times();
        assert!(stats.iter().all(|(at, _)| *at == 1_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_time_keeps_the_order_of_the_times() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .delayed(Delayed::Pass)
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    for id in 0..100 {
        dispatcher
            .send_when(
                Message::new(1, id),
                Duration::from_millis(100 + (id * 37) % 100),
            )
            .await
            .unwrap();
    }
    settle().await;
    tokio::time::advance(HOUR).await;
    settle().await;
    let order = |id: &u64| (id * 37) % 100;
    assert!(
        recorder.ids().is_sorted_by_key(order),
        "{:?}",
        recorder.ids()
    );
    assert_eq!(recorder.ids().len(), 100);
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_that_does_not_exist() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    assert_eq!(
        dispatcher
            .send_when(Message::new(1, 1), Duration::MAX)
            .await,
        Err(SendError::TooFar(Message::new(1, 1)))
    );
    let submitted = dispatcher
        .submit_when(Message::new(1, 1), Duration::MAX)
        .await;
    assert_eq!(submitted.err(), Some(SendError::TooFar(Message::new(1, 1))));
    assert_eq!(SendError::TooFar(7).into_inner(), 7);
    let report = recorder.finish(dispatcher).await;
    assert_eq!(report.accepted, 0);
}

/// Longer than the wheel of the timers can hold at once.
#[tokio::test(start_paused = true)]
async fn a_very_long_time_is_kept() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        for key in [Some(1), None] {
            let recorder = Recorder::new();
            let dispatcher = dispatcher()
                .delayed(delayed)
                .spawn(recorder.handler(|_, _| Act::ok()))
                .unwrap();
            dispatcher
                .send_when(Message::new(key, 1), 3 * 365 * 24 * HOUR)
                .await
                .unwrap();
            // The last one is beyond the nanoseconds that 64 bits count.
            for (key, wait) in [(2, CENTURY), (3, Duration::from_millis(u64::MAX))] {
                dispatcher
                    .send_when(Message::new(key, key), wait)
                    .await
                    .unwrap();
            }
            let report =
                within_years(async { dispatcher.drain().within(4 * 365 * 24 * HOUR).await }).await;
            assert_eq!(
                (report.done, report.handed_back),
                (1, 2),
                "{delayed:?} {key:?}"
            );
            assert_eq!(recorder.times(), [(3 * 365 * 24 * 3_600_000, 1)]);
            recorder.judge(&dispatcher, &report, CAPACITY);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_over_is_now() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .delayed(delayed)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        let past = Instant::now();
        at(&recorder, 100).await;
        dispatcher
            .send_when(Message::new(1, 1), past)
            .await
            .unwrap();
        dispatcher
            .send_when(Message::new(None, 2), Duration::ZERO)
            .await
            .unwrap();
        dispatcher
            .send_when(Message::new(1, 3), Duration::ZERO)
            .await
            .unwrap();
        settle().await;
        let mut times = recorder.times();
        times.sort();
        assert_eq!(times, [(100, 1), (100, 2), (100, 3)]);
        recorder.finish(dispatcher).await;
    }
}

/// A message without a key is the head of no lane, and its delay is no retry.
#[tokio::test(start_paused = true)]
async fn keyless_messages_are_delayed() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .delayed(delayed)
            .retry(Retry::fixed(MS))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(1))
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        for id in 0..100 {
            dispatcher
                .send_when(Message::new(None, id), 100 * MS)
                .await
                .unwrap();
        }
        send_all(&dispatcher, None, [500]).await;
        at(&recorder, 50).await;
        let stats = dispatcher.stats();
        assert_eq!(
            (stats.backing_off, stats.done, stats.capacity_left),
            (0, 1, CAPACITY)
        );
        at(&recorder, 105).await;
        let stats = dispatcher.stats();
        assert_eq!((stats.retries, stats.postponed, stats.done), (0, 0, 101));
        assert!(recorder.times()[1..].iter().all(|(at, _)| *at == 100));
        recorder.finish(dispatcher).await;
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_messages_take_no_other_keys_room() {
    for (delayed, key) in [
        (Delayed::Wait, Some(1)),
        (Delayed::Pass, Some(1)),
        (Delayed::Pass, None),
    ] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .capacity(10)
            .lane_capacity(100, keylane::Overflow::Wait)
            .delayed(delayed)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        for id in 1..=8 {
            dispatcher
                .send_when(Message::new(key, id), HOUR)
                .await
                .unwrap();
        }
        settle().await;
        for id in 21..=60 {
            dispatcher.try_send(Message::new(2, id)).unwrap();
            settle().await;
        }
        assert_eq!(
            (dispatcher.stats().capacity_left, dispatcher.stats().stalled),
            (10, 8),
            "{delayed:?}"
        );
        let report = within_years(async { dispatcher.drain().await }).await;
        assert_eq!((report.done, recorder.now()), (48, 3_600_000));
        recorder.judge(&dispatcher, &report, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn in_batches() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .delayed(delayed)
            .batch(4, Duration::ZERO)
            .spawn_batches(recorder.batch_handler(|_| Duration::ZERO))
            .unwrap();
        send_all(&dispatcher, 1, [1]).await;
        dispatcher
            .send_when(Message::new(1, 2), 100 * MS)
            .await
            .unwrap();
        send_all(&dispatcher, 1, [3, 4]).await;
        dispatcher
            .send_when(Message::new(1, 5), 100 * MS)
            .await
            .unwrap();
        dispatcher
            .send_when(Message::new(1, 6), 200 * MS)
            .await
            .unwrap();
        at(&recorder, 500).await;
        let calls: Vec<_> = recorder
            .calls()
            .into_iter()
            .map(|call| (call.at, call.ids))
            .collect();
        match delayed {
            Delayed::Pass => assert_eq!(
                calls,
                [(0, vec![1, 3, 4]), (100, vec![2, 5]), (200, vec![6])]
            ),
            _ => assert_eq!(
                calls,
                [(0, vec![1]), (100, vec![2, 3, 4, 5]), (200, vec![6])]
            ),
        }
        recorder.finish(dispatcher).await;
    }
}

/// A drain waits for it, and so does a dispatcher without handles; a close and an abort hand it back.
#[tokio::test(start_paused = true)]
async fn what_is_not_due_at_the_end() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        for key in [Some(1), None] {
            for end in ["drain", "close", "abort", "drop"] {
                let recorder = Recorder::new();
                let dispatcher = dispatcher()
                    .delayed(delayed)
                    .spawn(recorder.handler(|_, _| Act::ok()))
                    .unwrap();
                let receipt = dispatcher
                    .submit_when(Message::new(key, 1), SECOND)
                    .await
                    .unwrap();
                dispatcher
                    .send_when(Message::new(key, 2), SECOND)
                    .await
                    .unwrap();
                if ["drain", "close"].contains(&end) {
                    settle().await;
                }
                let case = format!("{end} {delayed:?} {key:?}");
                let report = match end {
                    "drain" => within(async { dispatcher.drain().await }).await,
                    "close" => within(async { dispatcher.close().await }).await,
                    "abort" => within(async { dispatcher.abort().await }).await,
                    _ => {
                        drop(dispatcher);
                        assert_eq!(within(receipt).await, Ok(1), "{case}");
                        settle().await;
                        let mut times = recorder.times();
                        times.sort_unstable();
                        assert_eq!(times, [(1_000, 1), (1_000, 2)], "{case}");
                        continue;
                    }
                };
                recorder.judge(&dispatcher, &report, CAPACITY);
                let answer = outcome(&receipt.await);
                if end == "drain" {
                    assert_eq!(
                        (report.done, answer, recorder.now()),
                        (2, "done", 1_000),
                        "{case}"
                    );
                } else {
                    assert_eq!(
                        (report.handed_back, answer, recorder.now()),
                        (2, "handed back", 0),
                        "{case}"
                    );
                    assert_eq!(
                        report.returned[0].message,
                        Some(Message::new(key, 2)),
                        "{case}"
                    );
                }
            }
        }
    }
}

/// A message that comes late does not start a lane that forgot that it was stopped.
#[tokio::test(start_paused = true)]
async fn a_drain_does_not_start_what_is_stopped() {
    for halts in [true, false] {
        let recorder = Recorder::new();
        let mut builder = dispatcher().delayed(Delayed::Pass);
        if halts {
            builder = builder.on_exhausted(keylane::OnExhausted::Halt);
        }
        let dispatcher = builder
            .spawn(recorder.handler(|id, _| if id == 1 { Act::error() } else { Act::ok() }))
            .unwrap();
        if !halts {
            dispatcher.lane(&1).pause();
        }
        dispatcher
            .send_when(Message::new(1, 3), SECOND)
            .await
            .unwrap();
        send_all(&dispatcher, 1, [1, 2]).await;
        settle().await;
        let report = recorder.finish(dispatcher).await;
        assert_eq!(report.handed_back, 3, "halts: {halts}");
        let ids: Vec<_> = report
            .returned
            .iter()
            .map(|back| back.message.as_ref().unwrap().id)
            .collect();
        assert_eq!(ids, [1, 2, 3]);
    }
}

/// Not before its expiry either: a message that is delayed and expires settles at its time.
#[tokio::test(start_paused = true)]
async fn a_delayed_message_expires() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        for key in [Some(1), None] {
            let recorder = Recorder::new();
            let dispatcher = dispatcher()
                .delayed(delayed)
                .expire_after(100 * MS)
                .spawn(recorder.handler(|_, _| Act::ok()))
                .unwrap();
            let receipt = dispatcher
                .submit_when(Message::new(key, 1), HOUR)
                .await
                .unwrap();
            assert_eq!(outcome(&receipt.await), "expired");
            assert_eq!(recorder.now(), 100, "{delayed:?} {key:?}");
            let report = recorder.finish(dispatcher).await;
            assert_eq!((report.expired, recorder.now()), (1, 100));
        }
    }
}
