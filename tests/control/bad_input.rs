//! Settings and calls that make no sense: typed errors, never a wedge.

use std::time::Duration;

use keylane::error::{BuildError, LaneError};
use keylane::{Overflow, Rate};
use keylane_testkit::scenario::{MS, Message, within};
use keylane_testkit::{Act, ScriptError};

use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, send_all};

async fn all(batch: Vec<Message>) -> Result<Vec<u64>, ScriptError> {
    Ok(batch.iter().map(|message| message.id).collect())
}

#[tokio::test(start_paused = true)]
async fn settings_that_let_nothing_start_are_refused() {
    let recorder = Recorder::new();
    let zero = |name| Some(BuildError::Zero(name));
    let spawn = |rate| {
        dispatcher()
            .rate_per_key(rate)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .err()
    };
    for rate in [
        Rate::per_second(0),
        Rate::per(1, Duration::ZERO),
        Rate::per_second(1).burst(0),
    ] {
        assert_eq!(spawn(rate), zero("rate_per_key"), "{rate:?}");
    }
    for rate in [
        Rate::per_second(u32::MAX),
        Rate::per(1, Duration::MAX),
        Rate::per(2, Duration::from_nanos(1)),
    ] {
        assert_eq!(
            spawn(rate),
            Some(BuildError::TooLarge("rate_per_key")),
            "{rate:?}"
        );
    }
    let batches = |max| {
        dispatcher()
            .batch(max, Duration::ZERO)
            .spawn_batches(all)
            .err()
    };
    assert_eq!(batches(0), zero("batch"));
    assert_eq!(batches(usize::MAX), None);
    let handler = || recorder.handler(|_, _| Act::ok());
    assert_eq!(
        dispatcher().batch(0, MS).spawn(handler()).err(),
        Some(BuildError::Batch)
    );
    assert_eq!(
        dispatcher().batch(2, MS).spawn(handler()).err(),
        Some(BuildError::Batch)
    );
    assert_eq!(
        dispatcher()
            .expire_after(Duration::ZERO)
            .spawn(handler())
            .err(),
        zero("expire_after")
    );
    assert_eq!(
        dispatcher()
            .lane_capacity(0, Overflow::Wait)
            .spawn(handler())
            .err(),
        zero("lane_capacity")
    );
    assert_eq!(
        dispatcher().concurrency(0).spawn(handler()).err(),
        zero("concurrency")
    );
    assert_eq!(
        dispatcher().capacity(0).spawn(handler()).err(),
        zero("capacity")
    );
}

/// The last setting counts, as with all others.
#[tokio::test(start_paused = true)]
async fn a_lifetime_that_is_set_again() {
    let recorder = Recorder::new();
    let builder = dispatcher().expire_after(Duration::ZERO).expire_after(HOUR);
    let jobs_ = builder.spawn(recorder.handler(|_, _| Act::ok())).unwrap();
    send_all(&jobs_, 1, [1]).await;
    assert_eq!(recorder.finish(jobs_).await.done, 1);
    let zero = dispatcher()
        .expire_by(|_| None)
        .expire_after(Duration::ZERO);
    assert_eq!(
        zero.spawn(recorder.handler(|_, _| Act::ok())).err(),
        Some(BuildError::Zero("expire_after"))
    );
}

/// A batch without `batch` has its defaults, and one of one message is no batch.
#[tokio::test(start_paused = true)]
async fn batches_of_the_smallest_and_the_largest_size() {
    for max in [None, Some(1), Some(usize::MAX)] {
        let recorder = Recorder::new();
        let mut builder = dispatcher();
        if let Some(max) = max {
            builder = builder.batch(max, MS);
        }
        let dispatcher = builder.spawn_batches(all).unwrap();
        for id in 0..500 {
            dispatcher.send(Message::new(id % 3, id)).await.unwrap();
        }
        assert_eq!(recorder.finish(dispatcher).await.done, 500);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_that_panics_accepts_nothing() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .expire_by(|message| {
            if message.id == 1 {
                std::panic::resume_unwind(Box::new("told"))
            } else {
                None
            }
        })
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    let sender = tokio::spawn({
        let dispatcher = dispatcher.clone();
        async move { dispatcher.send(Message::new(1, 1)).await }
    });
    assert!(sender.await.unwrap_err().is_panic());
    send_all(&dispatcher, 1, [2]).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.accepted, report.done), (1, 1));
}

/// It is not resumed: its senders feel its limit, and no others do.
#[tokio::test(start_paused = true)]
async fn one_key_paused_for_ever() {
    for thinks in [false, true] {
        let recorder = Recorder::new();
        let mut builder = dispatcher().capacity(50).lane_capacity(10, Overflow::Wait);
        if thinks {
            builder = builder.expire_after(1_000 * HOUR);
        }
        let dispatcher = builder.spawn(recorder.handler(|_, _| Act::ok())).unwrap();
        dispatcher.lane(&1).pause();
        for id in 1..=10 {
            send_all(&dispatcher, 1, [id]).await;
            at(&recorder, id).await;
        }
        let mut stuck = Vec::new();
        for id in 11..=30 {
            let dispatcher = dispatcher.clone();
            stuck.push(tokio::spawn(async move {
                dispatcher.send(Message::new(1, id)).await
            }));
        }
        for id in 100..1_000 {
            within(send_all(&dispatcher, 2 + id % 5, [id])).await;
        }
        at(&recorder, 1_000_000).await;
        assert!(stuck.iter().all(|sender| !sender.is_finished()));
        assert_eq!(dispatcher.stats().done, 900, "thinks: {thinks}");
        assert_eq!(dispatcher.inspect(&1).unwrap().depth, 10);
        let report = within(async { dispatcher.drain().await }).await;
        assert_eq!((report.done, report.handed_back), (900, 10));
        for sender in stuck {
            assert!(sender.await.unwrap().is_err(), "it was not let in");
        }
        recorder.judge(&dispatcher, &report, 50);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_does_not_fit() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .capacity_bytes(100, |message| message.id as usize)
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    let lane = dispatcher.lane(&1);
    lane.pause();
    send_all(&dispatcher, 1, [40]).await;
    send_all(&dispatcher, 2, [41]).await;
    at(&recorder, 1).await;
    assert_eq!(
        lane.replace(Message::new(2, 1)),
        Err(LaneError::OtherKey(Message::new(2, 1)))
    );
    assert_eq!(
        lane.replace(Message::new(None, 1)),
        Err(LaneError::OtherKey(Message::new(None, 1)))
    );
    assert_eq!(
        lane.replace(Message::new(1, 101)),
        Err(LaneError::TooLarge(Message::new(1, 101)))
    );
    assert_eq!(lane.replace(Message::new(1, 7)), Ok(Message::new(1, 40)));
    lane.resume().unwrap();
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, recorder.ids()), (2, vec![41, 7]));
    assert_eq!(CAPACITY, 20_000);
}

/// The bytes of a message that was put in the place of one that has not started count as its own.
#[tokio::test(start_paused = true)]
async fn a_replacement_has_its_own_size() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .capacity_bytes(100, |message| message.id as usize)
        .stalled_capacity(0)
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    let lane = dispatcher.lane(&1);
    lane.pause();
    send_all(&dispatcher, 1, [90]).await;
    at(&recorder, 1).await;
    assert!(dispatcher.try_send(Message::new(2, 60)).is_err());
    lane.replace(Message::new(1, 40)).unwrap();
    dispatcher.try_send(Message::new(2, 60)).unwrap();
    at(&recorder, 2).await;
    lane.replace(Message::new(1, 95)).unwrap();
    assert!(dispatcher.try_send(Message::new(2, 6)).is_err());
    dispatcher.try_send(Message::new(2, 5)).unwrap();
    lane.resume().unwrap();
    at(&recorder, 3).await;
    dispatcher.try_send(Message::new(3, 100)).unwrap();
    recorder.finish(dispatcher).await;
}
