//! `expire_after` and `expire_by`.

use std::time::Duration;

use keylane::discipline::Coalesce;
use keylane::error::ReceiptError;
use keylane::watching::LaneState;
use keylane::{Rate, Retry};
use keylane_testkit::Act;
use keylane_testkit::scenario::{MS, Message, SECOND, outcome, settle, within};

use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, send_all, submit_all};

/// A lifetime of so many milliseconds as the number says in its last three digits.
fn told(message: &Message) -> Option<Duration> {
    Some(Duration::from_millis(message.id % 1_000)).filter(|life| *life != 999 * MS)
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_when_it_comes_does_not_start() {
    for key in [Some(1), None] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .expire_by(told)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        let mut receipts = submit_all(&dispatcher, key, [1_000, 2_010])
            .await
            .into_iter();
        let first = receipts.next().unwrap().await;
        assert_eq!(first, Err(ReceiptError::Expired(Message::new(key, 1_000))));
        assert_eq!(receipts.next().unwrap().await, Ok(2_010));
        assert_eq!((recorder.ids(), recorder.now()), (vec![2_010], 0));
        let report = recorder.finish(dispatcher).await;
        assert_eq!((report.expired, report.done, report.accepted), (1, 1, 2));
    }
}

/// Behind a head that blocks, each settles at its own time, whatever the order of the lifetimes.
#[tokio::test(start_paused = true)]
async fn what_waits_expires_at_its_time() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .expire_by(told)
        .retry(Retry::fixed(HOUR))
        .spawn(recorder.handler(|id, _| {
            if id == 999 {
                Act::ok().sleeps(SECOND)
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    send_all(&dispatcher, 1, [999]).await;
    settle().await;
    let lives = [500, 100, 300, 100, 200, 999, 400];
    let mut waiting = Vec::new();
    for (n, life) in (1..).zip(lives) {
        let id = n * 1_000 + life;
        let receipt = dispatcher.submit(Message::new(1, id)).await.unwrap();
        let recorder = recorder.clone();
        waiting.push(tokio::spawn(async move {
            let answer = receipt.await;
            (recorder.now(), outcome(&answer))
        }));
    }
    at(&recorder, 350).await;
    assert_eq!(
        dispatcher.inspect(&1).unwrap().depth,
        4,
        "the head and three"
    );
    assert_eq!(dispatcher.stats().capacity_left, CAPACITY - 4);
    let mut told = Vec::new();
    for waiting in waiting {
        told.push(waiting.await.unwrap());
    }
    let expired = |at| (at, "expired");
    assert_eq!(
        told,
        [
            expired(500),
            expired(100),
            expired(300),
            expired(100),
            expired(200),
            (1_000, "done"),
            expired(400)
        ]
    );
    recorder.finish(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_the_lane_waits_for() {
    // Backing off, paused, rate-limited, behind a delayed one, halted.
    for why in 0..5 {
        let recorder = Recorder::new();
        let mut builder = dispatcher()
            .expire_by(|message| (message.id > 1).then_some(100 * MS))
            .retry(Retry::fixed(HOUR).max_attempts(if why == 4 { 1 } else { 2 }));
        if why == 4 {
            builder = builder.on_exhausted(keylane::OnExhausted::Halt);
        }
        if why == 2 {
            builder = builder.rate_per_key(Rate::per(1, HOUR));
        }
        let dispatcher = builder
            .spawn(recorder.handler(move |_, attempt| {
                if [0, 4].contains(&why) && attempt == 1 {
                    Act::error()
                } else {
                    Act::ok()
                }
            }))
            .unwrap();
        match why {
            1 => dispatcher.lane(&1).pause(),
            3 => dispatcher
                .send_when(Message::new(1, 1), HOUR)
                .await
                .unwrap(),
            _ => dispatcher.send(Message::new(1, 1)).await.unwrap(),
        }
        settle().await;
        let receipts = submit_all(&dispatcher, 1, 2..=4).await;
        at(&recorder, 99).await;
        assert_eq!(dispatcher.stats().expired, 0, "{why}");
        for receipt in receipts {
            assert_eq!(outcome(&receipt.await), "expired", "{why}");
        }
        assert_eq!(recorder.now(), 100, "{why}");
        let state = dispatcher.inspect(&1).map(|view| view.state);
        let fits = match why {
            0 => matches!(state, Some(LaneState::Backoff { .. })),
            1 => state == Some(LaneState::Paused),
            // The rate is remembered without a lane.
            2 => state.is_none(),
            3 => matches!(state, Some(LaneState::Delayed { .. })),
            _ => matches!(state, Some(LaneState::Halted { .. })),
        };
        assert!(fits, "{why}: {state:?}");
        assert_eq!(
            dispatcher.stats().stalled,
            usize::from([0, 3, 4].contains(&why)),
            "{why}"
        );
        recorder.finish(dispatcher).await;
    }
}

/// A head in backoff expires when its attempt is due; what is behind it goes on.
#[tokio::test(start_paused = true)]
async fn a_head_that_backs_off_expires_when_it_is_due() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .expire_by(|message| (message.id == 1).then_some(50 * MS))
        .retry(Retry::fixed(100 * MS))
        .spawn(recorder.handler(|id, _| if id == 1 { Act::error() } else { Act::ok() }))
        .unwrap();
    let receipt = dispatcher.submit(Message::new(1, 1)).await.unwrap();
    send_all(&dispatcher, 1, [2]).await;
    assert_eq!(outcome(&receipt.await), "expired");
    settle().await;
    assert_eq!(recorder.times(), [(0, 1), (100, 2)]);
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.expired, report.done), (1, 1));
}

/// While its turn waits for a permit too.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_permit_expires_at_its_time() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(1)
        .quantum(1)
        .expire_by(|message| (message.id < 20).then_some(100 * MS))
        .spawn(recorder.handler(|id, _| {
            if id > 20 {
                Act::ok().sleeps(HOUR)
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    let receipts = submit_all(&dispatcher, 1, [1, 2, 3]).await;
    send_all(&dispatcher, 2, [22]).await;
    let mut words = Vec::new();
    for receipt in receipts {
        words.push((outcome(&receipt.await), recorder.now()));
    }
    assert_eq!(words, [("done", 0), ("expired", 100), ("expired", 100)]);
    recorder.finish(dispatcher).await;
}

/// The messages that were to start with one that has expired are not lost with it.
#[tokio::test(start_paused = true)]
async fn a_batch_without_its_expired_head() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .concurrency(1)
        .quantum(1)
        .batch(2, Duration::ZERO)
        .expire_by(|message| (message.id == 3).then_some(100 * MS))
        .spawn_batches(
            recorder.batch_handler(|ids| if ids[0] > 20 { SECOND } else { Duration::ZERO }),
        )
        .unwrap();
    send_all(&dispatcher, 1, 1..=5).await;
    send_all(&dispatcher, 2, [22]).await;
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, report.expired), (5, 1));
    assert_eq!(recorder.batches(), [vec![1, 2], vec![22], vec![4, 5]]);
}

/// Those of a batch that failed expire at their time as well, behind their head.
#[tokio::test(start_paused = true)]
async fn what_a_failed_batch_put_back_expires_at_its_time() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .batch(4, Duration::ZERO)
        .retry(Retry::fixed(HOUR))
        .expire_by(|message| Some(Duration::from_millis(message.id * 100)))
        .spawn_batches(|batch: Vec<Message>| async move {
            tokio::time::sleep(250 * MS).await;
            Err::<Vec<u64>, _>(keylane_testkit::ScriptError::Error(batch[0].id))
        })
        .unwrap();
    let receipts = submit_all(&dispatcher, 1, 1..=4).await;
    let mut told = Vec::new();
    for receipt in receipts.into_iter().skip(1) {
        told.push((outcome(&receipt.await), recorder.now()));
    }
    assert_eq!(told[1..], [("expired", 300), ("expired", 400)]);
    assert_eq!(told[0].0, "expired");
    assert!((250..=252).contains(&told[0].1), "{told:?}");
    let report = dispatcher.close().await;
    recorder.judge(&dispatcher, &report, CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn lifetimes_without_an_end() {
    for life in [Duration::MAX, 100 * 365 * 24 * HOUR] {
        let recorder = Recorder::new();
        let dispatcher = dispatcher()
            .expire_after(life)
            .spawn(recorder.handler(|_, _| Act::ok().sleeps(10 * MS)))
            .unwrap();
        send_all(&dispatcher, 1, 1..=3).await;
        let report = recorder.finish(dispatcher).await;
        assert_eq!((report.done, recorder.now()), (3, 30));
    }
}

#[tokio::test(start_paused = true)]
async fn a_coalesced_message_expires_with_those_it_stands_for() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .coalesce(Coalesce::merge(|old: &Message, new| {
            Message::new(new.key, old.id.max(new.id))
        }))
        .expire_by(|message| (message.id > 1).then_some(100 * MS))
        .spawn(recorder.handler(|id, _| {
            if id == 1 {
                Act::ok().sleeps(HOUR)
            } else {
                Act::ok()
            }
        }))
        .unwrap();
    send_all(&dispatcher, 1, [1]).await;
    settle().await;
    let receipts = submit_all(&dispatcher, 1, 2..=4).await;
    let mut words = Vec::new();
    for receipt in receipts {
        words.push(format!("{:?}", receipt.await));
    }
    assert_eq!(
        words,
        [
            "Err(merged into a message of its key, which was not handled (Merged))",
            "Err(merged into a message of its key, which was not handled (Merged))",
            "Err(expired before it could be started or retried (Expired))"
        ]
    );
    assert_eq!(
        (recorder.now(), dispatcher.inspect(&1).unwrap().depth),
        (100, 1)
    );
    let report = recorder.finish(dispatcher).await;
    assert_eq!((report.done, report.coalesced, report.expired), (1, 2, 1));
}

/// Many lanes, many lifetimes, all blocked: all are settled at their times, none is left.
#[tokio::test(start_paused = true)]
async fn thousands_expire_each_at_its_time() {
    let recorder = Recorder::new();
    let dispatcher = dispatcher()
        .expire_by(told)
        .spawn(recorder.handler(|_, _| Act::ok()))
        .unwrap();
    for key in 0..500 {
        dispatcher.lane(&key).pause();
    }
    for id in 0..10_000 {
        dispatcher
            .send(Message::new(id % 500, (id / 500) * 1_000 + 10 + id % 90))
            .await
            .unwrap();
    }
    for ms in [9, 30, 60, 99] {
        at(&recorder, ms).await;
        let due = (0..10_000_u64).filter(|id| 10 + id % 90 <= ms).count() as u64;
        assert_eq!(dispatcher.stats().expired, due, "at {ms}");
    }
    assert_eq!(dispatcher.stats().paused, 500);
    let report = within(async { dispatcher.drain().await }).await;
    assert_eq!((report.expired, report.handed_back), (10_000, 0));
    recorder.judge(&dispatcher, &report, CAPACITY);
}
