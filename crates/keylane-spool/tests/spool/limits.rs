//! What happens at the limits.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keylane_spool::{AtLimit, Message, OpenError, Persist, PushError, Spool};

use crate::support::{Act, Scripted, check_sums, eventually};

const MS: Duration = Duration::from_millis(1);

/// A message of 1,000 bytes, as they are counted.
fn kilo(n: usize) -> Vec<u8> {
    let mut payload = n.to_string().into_bytes();
    payload.resize(1_000 - 144, b' ');
    payload
}

fn numbers(sink: &Scripted) -> Vec<usize> {
    let number = |text: String| text.trim().trim_start_matches("a=").parse().unwrap();
    sink.written().into_iter().map(number).collect()
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_a_push_waits_in_its_turn() {
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone())
        .memory(4_096)
        .open()
        .await
        .unwrap();
    for n in 0..4 {
        spool.push("a", kilo(n)).await.unwrap();
    }
    let mut pushes = Vec::new();
    for n in 4..12 {
        let spool = spool.clone();
        pushes.push(tokio::spawn(async move { spool.push("a", kilo(n)).await }));
        tokio::time::sleep(MS).await;
    }
    assert_eq!(spool.stats().waiting_pushes, 8);
    // A small one would fit, and must not overtake.
    assert!(matches!(spool.try_push("a", "4"), Err(PushError::Full(_))));
    sink.then(Act::Write);
    for push in pushes {
        push.await.unwrap().unwrap();
    }
    spool.flush().await.unwrap();
    assert_eq!(numbers(&sink), (0..12).collect::<Vec<_>>());
    assert_eq!(spool.stats().waiting_pushes, 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_a_push_is_rejected() {
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone())
        .memory(4_096)
        .at_limit(AtLimit::Reject)
        .open()
        .await
        .unwrap();
    for n in 0..4 {
        spool.push("a", kilo(n)).await.unwrap();
    }
    let error = spool.push("a", kilo(4)).await.unwrap_err();
    assert!(matches!(error, PushError::Full(_)), "{error:?}");
    assert_eq!(error.into_inner(), Message::new("a", kilo(4)));
    sink.then(Act::Write);
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered, 4);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_the_oldest_are_dropped() {
    let sink = Scripted::new([Act::Hang]);
    let spool = Spool::builder(sink.clone())
        .memory(4_096)
        .batch(1, 1 << 20, Duration::ZERO)
        .at_limit(AtLimit::DropOldest)
        .open()
        .await
        .unwrap();
    spool.push("a", kilo(0)).await.unwrap();
    // The first is in flight, and must not be dropped.
    tokio::time::sleep(MS).await;
    for n in 1..10 {
        spool.push("a", kilo(n)).await.unwrap();
    }
    assert_eq!(spool.stats().dropped, 6);
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!((report.dropped, report.delivered), (6, 4));
    assert_eq!(numbers(&sink), [0, 7, 8, 9]);
}

/// With a directory, memory goes to the disk, and the disk has the limit.
#[tokio::test]
async fn each_policy_at_the_limit_of_the_disk() {
    let policies = [
        Persist::Each,
        Persist::EveryMessages(8),
        Persist::Every(50 * MS),
        Persist::None,
    ];
    for persist in policies {
        for at_limit in [AtLimit::Wait, AtLimit::Reject, AtLimit::DropOldest] {
            let dir = tempfile::tempdir().unwrap();
            let sink = Scripted::down();
            let spool = Spool::builder(sink.clone())
                .dir(dir.path())
                .persist(persist)
                .memory(16 * 1024)
                .disk(64 * 1024)
                .at_limit(at_limit)
                .open()
                .await
                .unwrap();
            let mut accepted = 0;
            for n in 0..100 {
                let push = spool.push("a", kilo(n));
                let pushed = match at_limit {
                    AtLimit::Wait => match tokio::time::timeout(400 * MS, push).await {
                        Ok(pushed) => pushed,
                        Err(_) => break,
                    },
                    _ => push.await,
                };
                match pushed {
                    Ok(()) => accepted += 1,
                    Err(PushError::Full(_)) => assert_eq!(at_limit, AtLimit::Reject),
                    Err(error) => panic!("{error:?}"),
                }
                let stats = spool.stats();
                assert!(stats.waiting_bytes <= 64 * 1024, "{stats:?}");
                assert!(stats.memory_bytes <= 16 * 1024, "{stats:?}");
            }
            let stats = spool.stats();
            match at_limit {
                AtLimit::DropOldest => assert_eq!(stats.dropped, 100 - 65, "{persist:?}"),
                _ => assert!(
                    accepted <= 65 && stats.dropped == 0,
                    "{persist:?}: {accepted}"
                ),
            }
            sink.then(Act::Write);
            let report = spool.close().await;
            check_sums(&report);
            assert_eq!(
                report.delivered + report.dropped,
                report.accepted,
                "{report}"
            );
            assert!(numbers(&sink).is_sorted_by(|a, b| a < b));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_comes_back() {
    let spool = Spool::builder(Scripted::new([]))
        .max_message(1_000)
        .open()
        .await
        .unwrap();
    let error = spool.push("a", vec![0; 1_000]).await.unwrap_err();
    assert!(matches!(error, PushError::TooLarge(_)));
    let error = spool.push(vec![0; 1 << 20], "").await.unwrap_err();
    assert!(matches!(error, PushError::TooLarge(_)));
    let mut message = Message::new("a", "");
    message.headers.add("n".repeat(1 << 16), "");
    assert!(matches!(
        spool.try_push_message(message),
        Err(PushError::TooLarge(_))
    ));
    spool.push("", "").await.unwrap();

    let spool = Spool::builder(Scripted::new([])).open().await.unwrap();
    assert!(matches!(
        spool.push("a", vec![0; 64 << 20]).await,
        Err(PushError::TooLarge(_))
    ));
    spool
        .push(vec![0; 1 << 20], "a key of a mebibyte")
        .await
        .unwrap();
    assert_eq!(spool.close().await.delivered, 1);
}

#[tokio::test]
async fn settings_that_cannot_work() {
    let sink = || Scripted::new([]);
    let zero = |error| match error {
        Err(OpenError::Zero(name)) => name,
        other => panic!("{other:?}"),
    };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        zero(Spool::builder(sink()).batch(0, 1, MS).open().await),
        "batch: count"
    );
    assert_eq!(
        zero(Spool::builder(sink()).batch(1, 0, MS).open().await),
        "batch: bytes"
    );
    assert_eq!(
        zero(Spool::builder(sink()).in_flight(0).open().await),
        "in_flight"
    );
    assert_eq!(
        zero(Spool::builder(sink()).timeout(Duration::ZERO).open().await),
        "timeout"
    );
    assert_eq!(
        zero(Spool::builder(sink()).max_message(0).open().await),
        "max_message"
    );
    let disk = Spool::builder(sink()).dir(dir.path()).disk(0);
    assert_eq!(zero(disk.open().await), "disk");
    let persist = Spool::builder(sink())
        .dir(dir.path())
        .persist(Persist::EveryMessages(0));
    assert_eq!(zero(persist.open().await), "persist");
    let needs = Spool::builder(sink()).persist(Persist::Each).open().await;
    assert!(matches!(needs, Err(OpenError::Needs("persist", "dir"))));
    let needs = Spool::builder(sink()).disk(1).open().await;
    assert!(matches!(needs, Err(OpenError::Needs("disk", "dir"))));
    let memory = Spool::builder(sink()).memory(100).open().await;
    assert!(matches!(memory, Err(OpenError::Memory { .. })));
}

#[test]
fn a_spool_needs_a_runtime_with_timers() {
    let mut cx = Context::from_waker(Waker::noop());
    let open = pin!(Spool::builder(Scripted::new([])).open());
    let Poll::Ready(opened) = open.poll(&mut cx) else {
        panic!("it waits")
    };
    assert!(matches!(opened, Err(OpenError::NoRuntime)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let opened = runtime.block_on(Spool::builder(Scripted::new([])).open());
    assert!(matches!(opened, Err(OpenError::NoTimers)));
}

/// Dropped while it waits for room: not accepted, and the next one is not held up.
#[tokio::test(start_paused = true)]
async fn a_push_that_is_dropped_while_it_waits_for_room() {
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone())
        .memory(4_096)
        .open()
        .await
        .unwrap();
    for n in 0..4 {
        spool.push("a", kilo(n)).await.unwrap();
    }
    // The first and the second in the queue, at each of the two awaits.
    let first = tokio::time::timeout(10 * MS, spool.push("a", kilo(100)));
    let second = tokio::time::timeout(20 * MS, spool.push("a", kilo(101)));
    let third = spool.push("a", kilo(4));
    let rescue = async {
        tokio::time::sleep(5 * MS).await;
        assert_eq!(spool.stats().waiting_pushes, 3);
        tokio::time::sleep(20 * MS).await;
        assert_eq!(spool.stats().waiting_pushes, 1);
        sink.then(Act::Write);
    };
    let (first, second, third, ()) = tokio::join!(first, second, third, rescue);
    assert!(first.is_err() && second.is_err() && third.is_ok());
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.accepted, 5);
    assert_eq!(numbers(&sink), [0, 1, 2, 3, 4]);
}

/// Dropped while it waits for the disk: it is accepted all the same, and counted.
#[tokio::test]
async fn a_push_that_is_dropped_while_it_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Scripted::new([]);
    let spool = Spool::builder(sink.clone())
        .dir(dir.path())
        .open()
        .await
        .unwrap();
    {
        let push = pin!(spool.push("a", "0"));
        assert!(
            push.poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    eventually(|| spool.stats().accepted == 1).await;
    spool.push("a", "1").await.unwrap();
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered, 2);
    sink.check_order(2);
}

/// Times that no clock can add are not added.
#[tokio::test(start_paused = true)]
async fn times_without_end() {
    let sink = Scripted::new([Act::Fail]);
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::builder(sink.clone())
        .dir(dir.path())
        .persist(Persist::Every(Duration::MAX))
        .batch(10, 1 << 20, Duration::MAX)
        .backoff(Duration::MAX, Duration::MAX)
        .timeout(Duration::MAX)
        .open()
        .await
        .unwrap();
    spool.push("a", "0").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(sink.calls(), 0, "the batch waits to fill");
    let flush = tokio::time::timeout(Duration::from_secs(3_600), spool.flush());
    assert!(flush.await.is_err());
    assert_eq!(sink.calls(), 1, "it failed, and waits");
    let close = spool.close().within(Duration::MAX);
    let close = tokio::time::timeout(MS, close.into_future());
    assert!(close.await.is_err());
    let report = spool.close().within(Duration::ZERO).await;
    check_sums(&report);
    assert_eq!(report.left_on_disk, 1);
}
