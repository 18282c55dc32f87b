//! `pause` and `resume`.

use std::future::IntoFuture;

use keylane::error::LaneError;
use keylane::watching::LaneState;
use keylane::{Retry, RetryBudget};
use keylane_testkit::Act;
use keylane_testkit::scenario::{MS, Message, SECOND, outcome, settle, within};

use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, rounded, send_all, submit_all};

#[tokio::test(start_paused = true)]
async fn a_paused_key_starts_nothing_until_it_is_resumed() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok().sleeps(10 * MS)))
        .unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    send_all(&dispatcher, 2, 21..=23).await;
    at(&recorder, 5).await;
    dispatcher.lane(&1).pause();
    at(&recorder, 100).await;
    // What is in flight goes on to its end.
    assert_eq!(dispatcher.stats().done, 4);
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!((&view.state, view.depth), (&LaneState::Paused, 2));
    let ages = (rounded(view.head_age), rounded(view.oldest_waiting));
    assert_eq!(ages, (Some(100), Some(100)));
    assert_eq!(dispatcher.stats().paused, 1);
    dispatcher.lane(&1).resume().unwrap();
    assert_eq!(dispatcher.stats().paused, 0);
    assert_eq!(dispatcher.lane(&1).resume(), Err(LaneError::NotHalted(())));
    let report = recorder.finish(dispatcher).await;
    assert_eq!(report.done, 6);
    let mut times = recorder.times();
    times.retain(|(_, id)| *id < 10);
    assert_eq!(times, [(0, 1), (100, 2), (110, 3)]);
}

/// The turn is in the ready queue, because the one permit is taken.
#[tokio::test(start_paused = true)]
async fn a_turn_in_the_ready_queue_does_not_start() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(1)
        .spawn(recorder.handler(|_, _| Act::ok().sleeps(10 * MS)))
        .unwrap();
    send_all(&dispatcher, 9, [90]).await;
    settle().await;
    send_all(&dispatcher, 1, [1, 2]).await;
    settle().await;
    assert_eq!(dispatcher.inspect(&1).unwrap().state, LaneState::Ready);
    dispatcher.lane(&1).pause();
    at(&recorder, 100).await;
    assert_eq!(recorder.ids(), [90]);
    assert_eq!(dispatcher.inspect(&1).unwrap().depth, 2);
    assert_eq!(dispatcher.stats().in_flight, 0);
    dispatcher.lane(&1).resume().unwrap();
    at(&recorder, 200).await;
    assert_eq!(recorder.ids(), [90, 1, 2]);
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_there_is_paused_twice() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    let lane = dispatcher.lane(&1);
    assert_eq!(lane.resume(), Err(LaneError::NotHalted(())));
    lane.pause();
    lane.pause();
    let view = lane.inspect().unwrap();
    assert_eq!(
        (view.state, view.depth, view.head_age),
        (LaneState::Paused, 0, None)
    );
    assert_eq!(
        (dispatcher.stats().paused, dispatcher.stats().lanes),
        (1, 1)
    );
    assert_eq!(lane.skip(), Err(LaneError::NotHalted(())));
    assert_eq!(lane.purge(), 0);
    assert_eq!(
        lane.replace(Message::new(1, 9)),
        Err(LaneError::NotHalted(Message::new(1, 9)))
    );
    assert_eq!(lane.inspect().unwrap().state, LaneState::Paused);
    send_all(&dispatcher, 1, 1..=3).await;
    send_all(&dispatcher, 2, [21]).await;
    at(&recorder, 100).await;
    assert_eq!(recorder.ids(), [21]);
    lane.resume().unwrap();
    settle().await;
    assert_eq!(recorder.ids(), [21, 1, 2, 3]);
    assert_eq!((lane.inspect(), dispatcher.stats().lanes), (None, 0));
    // And an empty one that is resumed is gone.
    lane.pause();
    lane.resume().unwrap();
    settle().await;
    assert_eq!(lane.inspect(), None);
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_in_backoff_resumed_before_and_after_its_time() {
    for (resumed, retried) in [(50, 100), (100, 100), (101, 101), (500, 500)] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .retry(Retry::fixed(100 * MS).max_attempts(2))
            .spawn(recorder.handler(|id, attempt| match (id, attempt) {
                (1, 1) => Act::error(),
                _ => Act::ok(),
            }))
            .unwrap();
        send_all(&dispatcher, 1, [1, 2]).await;
        at(&recorder, 10).await;
        let lane = dispatcher.lane(&1);
        lane.pause();
        assert_eq!(lane.inspect().unwrap().state, LaneState::Paused);
        assert_eq!(lane.retry_now(), Err(LaneError::NotHalted(())));
        at(&recorder, resumed).await;
        assert_eq!(recorder.ids(), [1]);
        lane.resume().unwrap();
        at(&recorder, 600).await;
        assert_eq!(recorder.times()[1..], [(retried, 1), (retried, 2)]);
        let stats = dispatcher.stats();
        assert_eq!(
            (stats.retries, stats.backing_off),
            (1, 0),
            "resumed at {resumed}"
        );
        recorder.finish(dispatcher).await;
    }
}

/// A retry that comes out of the queue into a pause waits with its attempt.
#[tokio::test(start_paused = true)]
async fn a_retry_in_the_ready_queue_does_not_start() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(1)
        .retry(Retry::fixed(10 * MS).max_attempts(2))
        .spawn(recorder.handler(|id, attempt| match (id, attempt) {
            (1, 1) => Act::error(),
            (90, _) => Act::ok().sleeps(50 * MS),
            _ => Act::ok(),
        }))
        .unwrap();
    send_all(&dispatcher, 1, [1, 2]).await;
    at(&recorder, 5).await;
    send_all(&dispatcher, 9, [90]).await;
    at(&recorder, 20).await;
    assert_eq!(dispatcher.inspect(&1).unwrap().state, LaneState::Ready);
    dispatcher.lane(&1).pause();
    at(&recorder, 100).await;
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!((view.state, view.depth), (LaneState::Paused, 2));
    dispatcher.lane(&1).resume().unwrap();
    settle().await;
    let calls: Vec<_> = recorder
        .calls()
        .into_iter()
        .map(|call| (call.at, call.ids[0], call.attempt))
        .collect();
    assert_eq!(calls, [(0, 1, 1), (5, 90, 1), (100, 1, 2), (100, 2, 1)]);
    assert_eq!(dispatcher.stats().retries, 1);
    recorder.finish(dispatcher).await;
}

/// Its timer goes off in the pause; then an operator takes the head out.
#[tokio::test(start_paused = true)]
async fn the_count_of_those_in_backoff_is_right_after_a_pause() {
    for decide in 0..3 {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .retry(Retry::fixed(10 * MS).max_attempts(2))
            .spawn(recorder.handler(|id, attempt| match (id, attempt) {
                (1 | 21, 1) => Act::error(),
                _ => Act::ok(),
            }))
            .unwrap();
        send_all(&dispatcher, 1, [1]).await;
        at(&recorder, 5).await;
        let lane = dispatcher.lane(&1);
        lane.pause();
        at(&recorder, 50).await;
        assert_eq!(dispatcher.stats().backing_off, 0, "its timer has gone off");
        match decide {
            0 => lane.skip().unwrap(),
            1 => drop(lane.replace(Message::new(1, 3)).unwrap()),
            _ => assert_eq!(lane.purge(), 1),
        }
        lane.resume().unwrap();
        send_all(&dispatcher, 2, [21]).await;
        settle().await;
        assert_eq!(dispatcher.stats().backing_off, 1, "decision {decide}");
        recorder.finish(dispatcher).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_retry_costs_no_budget() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .retry(Retry::fixed(10 * MS).max_attempts(2))
        .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(1))
        .spawn(recorder.handler(|_, attempt| {
            if attempt == 1 {
                Act::error()
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    send_all(&dispatcher, 1, [1]).await;
    settle().await;
    dispatcher.lane(&1).pause();
    at(&recorder, 50).await;
    assert_eq!(dispatcher.stats().retries, 0);
    send_all(&dispatcher, 2, [2]).await;
    at(&recorder, 70).await;
    assert_eq!(recorder.times(), [(0, 1), (50, 2), (60, 2)]);
    dispatcher.lane(&1).resume().unwrap();
    settle().await;
    assert_eq!(dispatcher.stats().done, 2);
    recorder.finish(dispatcher).await;
}

/// Messages behind a paused lane take no other key's room.
#[tokio::test(start_paused = true)]
async fn a_paused_key_takes_no_room() {
    for running in [false, true] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .capacity(10)
            .lane_capacity(100, keylane::Overflow::Wait)
            .spawn(recorder.handler(|id, _| {
                if id == 1 {
                    Act::ok().sleeps(10 * MS)
                } else {
                    Act::ok()
                }
            }))
            .unwrap();
        if running {
            send_all(&dispatcher, 1, 1..=6).await;
            settle().await;
            dispatcher.lane(&1).pause();
            at(&recorder, 20).await;
            assert_eq!(
                (dispatcher.stats().stalled, dispatcher.stats().capacity_left),
                (5, 10)
            );
        } else {
            dispatcher.lane(&1).pause();
            for id in 2..=7 {
                send_all(&dispatcher, 1, [id]).await;
                settle().await;
            }
        }
        for id in 21..=60 {
            dispatcher.try_send(Message::new(2, id)).unwrap();
            settle().await;
        }
        let stats = dispatcher.stats();
        assert_eq!(stats.capacity_left, 10, "running: {running}");
        dispatcher.lane(&1).resume().unwrap();
        let report = within(async { dispatcher.drain().await }).await;
        assert_eq!(report.handed_back, 0);
        recorder.judge(&dispatcher, &report, 10);
    }
}

/// A drain does not wait for an operator to resume.
#[tokio::test(start_paused = true)]
async fn a_drain_hands_back_what_is_paused() {
    // Paused before the drain or during it, with the head in flight, failing, or at rest.
    for retries in [false, true] {
        for (pause_at, drain_at) in [(50, 60), (60, 50)] {
            let recorder = Recorder::new();
            let mut builder = dispatcher();
            if retries {
                builder = builder.retry(Retry::fixed(HOUR));
            }
            let dispatcher = builder
                .spawn(recorder.handler(move |id, _| match (id, retries) {
                    (1, false) => Act::ok().sleeps(100 * MS),
                    (1, true) => Act::error().sleeps(100 * MS),
                    _ => Act::ok(),
                }))
                .unwrap();
            let receipts = submit_all(&dispatcher, 1, 1..=3).await;
            at(&recorder, pause_at.min(drain_at)).await;
            let lane = dispatcher.lane(&1);
            let mut drain = Box::pin(dispatcher.drain().into_future());
            if pause_at < drain_at {
                lane.pause();
                at(&recorder, drain_at).await;
            } else {
                assert!(tokio::time::timeout(MS, &mut drain).await.is_err());
                at(&recorder, pause_at).await;
                lane.pause();
            }
            let report = tokio::time::timeout(SECOND, drain).await;
            let report = report.expect("a drain waits for no operator");
            recorder.judge(&dispatcher, &report, CAPACITY);
            let mut words = Vec::new();
            for receipt in receipts {
                words.push(outcome(&receipt.await));
            }
            let first = if retries { "handed back" } else { "done" };
            assert_eq!(
                words,
                [first, "handed back", "handed back"],
                "retries: {retries}, paused at {pause_at}"
            );
            assert_eq!(dispatcher.stats().paused, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pausing_after_the_end_leaves_nothing() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    dispatcher.lane(&1).pause();
    dispatcher.lane(&2).pause();
    send_all(&dispatcher, 2, [2]).await;
    let lane = dispatcher.lane(&3);
    let report = dispatcher.drain().await;
    recorder.judge(&dispatcher, &report, CAPACITY);
    lane.pause();
    assert_eq!(lane.inspect(), None);
    recorder.judge(&dispatcher, &report, CAPACITY);
    assert!(lane.resume().is_err());
}

/// Many operators pause and resume one key while it works: each message once, in order.
#[test]
fn operators_race_with_runners() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        for thinks in [false, true] {
            let recorder = Recorder::new();
            let mut builder = dispatcher().concurrency(3);
            if thinks {
                builder = builder.expire_after(HOUR);
            }
            let dispatcher = builder.spawn(recorder.handler(|_, _| Act::ok())).unwrap();
            let operators: Vec<_> = (0..3)
                .map(|n| {
                    let lane = dispatcher.lane(&(n % 2));
                    tokio::spawn(async move {
                        for _ in 0..2_000 {
                            lane.pause();
                            tokio::task::yield_now().await;
                            let _ = lane.resume();
                        }
                    })
                })
                .collect();
            for id in 0..4_000 {
                dispatcher.send(Message::new(id % 4, id)).await.unwrap();
            }
            for operator in operators {
                operator.await.unwrap();
            }
            for key in 0..2 {
                let _ = dispatcher.lane(&key).resume();
            }
            let report = recorder.finish(dispatcher).await;
            assert_eq!((report.done, report.handed_back), (4_000, 0));
            for key in 0..4 {
                let mut ids = recorder.ids();
                ids.retain(|id| id % 4 == key);
                assert!(ids.is_sorted(), "key {key}");
            }
        }
    });
}
