//! `rate_per_key`.

use std::time::Duration;

use keylane::watching::LaneState;
use keylane::{Rate, Retry};
use keylane_testkit::Act;
use keylane_testkit::scenario::{MS, Message, SECOND, settle, within};

use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, send_all};

#[tokio::test(start_paused = true)]
async fn a_burst_and_then_evenly() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .rate_per_key(Rate::per_second(10).burst(3))
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    at(&recorder, 1_000).await;
    send_all(&dispatcher, 1, 1..=6).await;
    send_all(&dispatcher, 2, 21..=24).await;
    send_all(&dispatcher, None, 31..=39).await;
    settle().await;
    // A limited key holds no runner, and says why it waits.
    let stats = dispatcher.stats();
    assert_eq!((stats.in_flight, stats.ready, stats.done), (0, 0, 15));
    assert_eq!((stats.stalled, stats.capacity_left), (4, CAPACITY));
    let view = dispatcher.inspect(&1).unwrap();
    assert_eq!(
        (view.state, view.depth),
        (LaneState::RateLimited { due_in: 100 * MS }, 3)
    );
    within(async {
        while dispatcher.stats().done < 19 {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
    let mut times = recorder.times();
    times.retain(|(_, id)| *id < 20);
    assert_eq!(
        times,
        [
            (1_000, 1),
            (1_000, 2),
            (1_000, 3),
            (1_100, 4),
            (1_200, 5),
            (1_300, 6)
        ]
    );
    recorder.finish(dispatcher).await;
}

/// What was not used is saved up, no further than the burst. It is remembered without a lane.
#[tokio::test(start_paused = true)]
async fn a_rate_is_remembered_without_a_lane_until_it_has_recovered() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .rate_per_key(Rate::per_second(10).burst(2))
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    send_all(&dispatcher, 1, [1, 2]).await;
    at(&recorder, 100).await;
    assert_eq!(
        (dispatcher.inspect(&1), dispatcher.stats().lanes),
        (None, 0)
    );
    at(&recorder, 150).await;
    send_all(&dispatcher, 1, [3]).await;
    at(&recorder, 302).await;
    assert_eq!(dispatcher.stats().lanes, 0);
    send_all(&dispatcher, 1, 4..=6).await;
    at(&recorder, 500).await;
    assert_eq!(
        recorder.times(),
        [(0, 1), (0, 2), (150, 3), (302, 4), (302, 5), (402, 6)]
    );
    recorder.finish(dispatcher).await;
}

/// The end does not wait for rates that are remembered.
#[tokio::test(start_paused = true)]
async fn no_end_waits_for_a_rate_that_is_only_remembered() {
    let builder = || dispatcher().rate_per_key(Rate::per(1, HOUR));
    for end in 0..4 {
        let recorder = Recorder::new();
        let dispatcher = builder()
            .spawn(recorder.handler(|_, _| Act::ok().sleeps(MS)))
            .unwrap();
        for key in 0..10 {
            send_all(&dispatcher, key, [key]).await;
        }
        if end < 3 {
            at(&recorder, 10).await;
            assert_eq!(dispatcher.stats().lanes, 0);
        }
        let report = within(async {
            match end {
                0 => dispatcher.close().await,
                1 => dispatcher.abort().await,
                _ => dispatcher.drain().await,
            }
        })
        .await;
        assert_eq!(report.done, 10, "end {end}");
        assert!(recorder.now() < 20);
        recorder.judge(&dispatcher, &report, CAPACITY);
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_keys_each_at_its_own_rate() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(2)
        .rate_per_key(Rate::per_second(1).burst(2))
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    for n in 0..4 {
        for key in 0..3_000 {
            dispatcher
                .send(Message::new(key, 4 * key + n))
                .await
                .unwrap();
        }
    }
    at(&recorder, 5_000).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!(report.done, 12_000);
    for (at, id) in recorder.times() {
        let due = [0, 0, 1_000, 2_000][(id % 4) as usize];
        assert_eq!(at, due, "message {id}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_are_not_counted() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .rate_per_key(Rate::per_second(1))
        .retry(Retry::fixed(10 * MS).max_attempts(4))
        .spawn(recorder.handler(|id, attempt| {
            if id == 1 && attempt < 4 {
                Act::error()
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    at(&recorder, 3_000).await;
    assert_eq!(
        recorder.times(),
        [(0, 1), (10, 1), (20, 1), (30, 1), (1_000, 2), (2_000, 3)]
    );
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_counts_as_one() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .batch(3, Duration::ZERO)
        .rate_per_key(Rate::per_second(1))
        .spawn_batches(recorder.batch_handler(|_| Duration::ZERO))
        .unwrap();
    send_all(&dispatcher, 1, 1..=7).await;
    at(&recorder, 5_000).await;
    let calls: Vec<_> = recorder
        .calls()
        .into_iter()
        .map(|call| (call.at, call.ids))
        .collect();
    assert_eq!(
        calls,
        [(0, vec![1, 2, 3]), (1_000, vec![4, 5, 6]), (2_000, vec![7])]
    );
    recorder.finish(dispatcher).await;
}

/// No window of time has more starts than its share, also where starts had to wait for a runner.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_runner_has_not_started() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(1)
        .quantum(1)
        .rate_per_key(Rate::per_second(10).burst(2))
        .spawn(recorder.handler(|id, _| {
            if id > 20 {
                Act::ok().sleeps(95 * MS)
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    send_all(&dispatcher, 1, 1..=6).await;
    for key in 2..=5 {
        send_all(&dispatcher, key, [20 + key]).await;
    }
    at(&recorder, 3_000).await;
    let mut times: Vec<_> = recorder.times();
    times.retain(|(_, id)| *id < 20);
    for (n, from) in times.iter().enumerate() {
        for (m, to) in times.iter().enumerate().skip(n) {
            let most = 2 + (to.0 - from.0) as usize / 100;
            assert!(m - n < most, "{times:?}");
        }
    }
    recorder.finish(dispatcher).await;
}

/// A purge does not give a key a new rate.
#[tokio::test(start_paused = true)]
async fn a_purge_forgets_no_rate() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .rate_per_key(Rate::per_second(1))
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    at(&recorder, 100).await;
    assert_eq!(dispatcher.lane(&1).purge(), 2);
    send_all(&dispatcher, 1, [4]).await;
    at(&recorder, 5_000).await;
    assert_eq!(recorder.times(), [(0, 1), (1_000, 4)]);
    assert_eq!(dispatcher.stats().lanes, 0);
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_rate_drains_in_its_own_time_and_closes_at_once() {
    let rated = || dispatcher().rate_per_key(Rate::per(1, 24 * HOUR));
    let recorder = Recorder::new();
    let dispatcher = rated().spawn(recorder.handler(|_, _| Act::ok())).unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, recorder.now()), (3, 2 * 24 * 3_600_000));

    let recorder = Recorder::new();
    let dispatcher = rated().spawn(recorder.handler(|_, _| Act::ok())).unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    let report = dispatcher.drain().within(SECOND).await;
    assert_eq!(
        (report.done, report.handed_back, recorder.now()),
        (1, 2, 1_000)
    );
    recorder.judge(&dispatcher, &report, CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_rate_together() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .rate_per_key(Rate::per_second(1))
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    send_all(&dispatcher, 1, 1..=3).await;
    at(&recorder, 500).await;
    dispatcher.lane(&1).pause();
    at(&recorder, 600).await;
    dispatcher.lane(&1).resume().unwrap();
    settle().await;
    assert_eq!(
        dispatcher.inspect(&1).unwrap().state,
        LaneState::RateLimited { due_in: 400 * MS }
    );
    at(&recorder, 1_500).await;
    dispatcher.lane(&1).pause();
    at(&recorder, 5_500).await;
    dispatcher.lane(&1).resume().unwrap();
    settle().await;
    assert_eq!(recorder.times(), [(0, 1), (1_000, 2), (5_500, 3)]);
    recorder.finish(dispatcher).await;
}
