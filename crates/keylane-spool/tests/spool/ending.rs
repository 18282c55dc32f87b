//! The end: drained, with a deadline, dropped, and without a runtime.

use std::time::Duration;

use keylane_spool::{FlushError, Persist, PushError, Spool};

use crate::support::{Act, Scripted, check_sums, eventually, text};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_deadline_gives_back_what_is_left() {
    let sink = Scripted::new([Act::Write, Act::Hang]);
    let spool = Spool::builder(sink.clone())
        .batch(2, 1 << 20, MS)
        .open()
        .await
        .unwrap();
    for n in 0..5 {
        spool.push("a", n.to_string()).await.unwrap();
    }
    let started = tokio::time::Instant::now();
    let report = spool.close().within(Duration::from_secs(3)).await;
    assert_eq!(started.elapsed().as_secs(), 3);
    check_sums(&report);
    assert_eq!((report.delivered, report.left_in_memory), (2, 3));
    let returned: Vec<_> = report.returned.iter().map(text).collect();
    assert_eq!(returned, ["a=2", "a=3", "a=4"]);
    assert_eq!(
        report.to_string(),
        "5 accepted + 0 recovered = 2 delivered + 3 left in memory"
    );
    assert!(spool.is_closed());
    let error = spool.push("a", "late").await.unwrap_err();
    assert!(matches!(error, PushError::Closed(_)));
    assert_eq!(spool.flush().await, Err(FlushError::Closed));
}

/// Under every policy, with a directory: what is not delivered is stored, and delivered later.
#[tokio::test(start_paused = true)]
async fn what_is_left_is_delivered_by_the_next_one() {
    let hour = Duration::from_secs(3_600);
    let policies = [
        Persist::Each,
        Persist::EveryMessages(1_000),
        Persist::Every(hour),
        Persist::None,
    ];
    for persist in policies {
        let dir = tempfile::tempdir().unwrap();
        let sink = Scripted::down();
        let open = || {
            Spool::builder(sink.clone())
                .dir(dir.path())
                .persist(persist)
                .open()
        };
        let spool = open().await.unwrap();
        for n in 0..50 {
            spool.push("a", n.to_string()).await.unwrap();
        }
        let report = spool.close().within(Duration::from_secs(1)).await;
        check_sums(&report);
        assert_eq!(
            (report.accepted, report.left_on_disk),
            (50, 50),
            "{persist:?}"
        );
        drop(spool);

        sink.then(Act::Write);
        let spool = open().await.unwrap();
        assert_eq!(spool.stats().recovered, 50);
        for n in 50..60 {
            spool.push("a", n.to_string()).await.unwrap();
        }
        let report = spool.close().await;
        check_sums(&report);
        assert_eq!((report.recovered, report.delivered), (50, 60));
        sink.check_order(60);
        assert_eq!(open().await.unwrap().stats().recovered, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn pushes_that_wait_are_told_of_the_end() {
    let spool = Spool::builder(Scripted::down())
        .memory(4_096)
        .open()
        .await
        .unwrap();
    while spool.try_push("a", vec![0; 800]).is_ok() {}
    let pushes: Vec<_> = (0..5)
        .map(|_| {
            let spool = spool.clone();
            tokio::spawn(async move { spool.push("a", vec![0; 800]).await })
        })
        .collect();
    tokio::time::sleep(MS).await;
    let flush = tokio::spawn({
        let spool = spool.clone();
        async move { spool.flush().await }
    });
    tokio::time::sleep(MS).await;
    let report = spool.close().within(Duration::ZERO).await;
    check_sums(&report);
    for push in pushes {
        assert!(matches!(push.await.unwrap(), Err(PushError::Closed(_))));
    }
    assert_eq!(flush.await.unwrap(), Err(FlushError::Closed));
}

#[tokio::test]
async fn the_last_handle_stores_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Scripted::down();
    let open = || {
        let spool = Spool::builder(sink.clone()).dir(dir.path());
        spool
            .persist(Persist::Every(Duration::from_secs(3_600)))
            .open()
    };
    let spool = open().await.unwrap();
    let clone = spool.clone();
    drop(spool);
    for n in 0..10 {
        clone.push("a", n.to_string()).await.unwrap();
    }
    drop(clone);
    // It stores in the background, and has the lock until then.
    let mut spool = open().await;
    while spool.is_err() {
        tokio::time::sleep(MS).await;
        spool = open().await;
    }
    assert_eq!(spool.unwrap().stats().recovered, 10);
}

/// A plain thread pushes; the runtime of the spool goes; nothing hangs, nothing is lost.
#[test]
fn other_threads_and_a_runtime_that_goes() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Scripted::down();
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let spool = runtime
        .block_on(Spool::builder(sink.clone()).dir(dir.path()).open())
        .unwrap();
    let other = std::thread::spawn({
        let spool = spool.clone();
        move || {
            let accepted: Vec<_> = (0..10)
                .map(|n| spool.try_push("a", n.to_string()).unwrap())
                .collect();
            for accepted in accepted {
                futures::executor::block_on(accepted.stored()).unwrap();
            }
            futures::executor::block_on(spool.push("a", "10")).unwrap();
            assert_eq!(spool.stats().accepted, 11);
        }
    });
    other.join().unwrap();
    // From another runtime, whose time stands still.
    let paused = tokio::runtime::Builder::new_current_thread();
    let paused = { paused }.enable_all().start_paused(true).build().unwrap();
    paused.block_on(spool.push("a", "11")).unwrap();
    drop(runtime);
    paused.block_on(async {
        eventually(|| spool.is_closed()).await;
        assert!(matches!(
            spool.push("a", "late").await,
            Err(PushError::Closed(_))
        ));
        assert_eq!(spool.flush().await, Err(FlushError::Closed));
        let report = spool.close().await;
        check_sums(&report);
        assert_eq!((report.accepted, report.left_on_disk), (12, 12));
        sink.then(Act::Write);
        let spool = Spool::builder(sink.clone())
            .dir(dir.path())
            .open()
            .await
            .unwrap();
        assert_eq!(spool.close().await.delivered, 12);
        sink.check_order(12);
    });
}

/// It is a handle, so what is in is delivered.
#[tokio::test(start_paused = true)]
async fn a_close_outlives_the_other_handles() {
    let sink = Scripted::new([Act::Fail]);
    let spool = Spool::builder(sink.clone()).open().await.unwrap();
    spool.push("a", "0").await.unwrap();
    let close = spool.close();
    drop(spool);
    let report = close.await;
    check_sums(&report);
    assert_eq!(report.delivered, 1);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_dropped_goes_on() {
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone()).open().await.unwrap();
    spool.push("a", "0").await.unwrap();
    let close = async { spool.close().within(Duration::from_secs(5)).await };
    assert!(tokio::time::timeout(MS, close).await.is_err());
    assert!(spool.is_closed());
    let started = tokio::time::Instant::now();
    let report = spool.close().within(Duration::from_secs(60)).await;
    check_sums(&report);
    assert!(
        started.elapsed() < Duration::from_secs(6),
        "the earliest deadline counts"
    );
}
