//! A server that cannot be asked.

use std::net::Ipv4Addr;
use std::time::Duration;

use keylane_redis::{ErrorKind, Quota, Redis, SharedRate, TryAcquireError, WhenAway};
use keylane_testkit::scenario::until_async as until;
use testkit_servers::proxy::Proxy;
use tokio::time::{sleep, timeout};

use crate::support::{Running, Starts, assert_within, builder, calls, each_kind, execute, own};

const KEEP: Duration = Duration::from_millis(300);

#[tokio::test]
async fn without_a_share_nothing_starts() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").total(Quota::per_second(100));
        let rate = rate.borrow(0).keep(KEEP).build().unwrap();
        rate.acquire("key").await.unwrap();
        for hangs in [true, false] {
            match hangs {
                true => server.pause().await.unwrap(),
                false => server.kill().await.unwrap(),
            }
            let mut waits = tokio::spawn({
                let rate = rate.clone();
                async move { rate.acquire("key").await }
            });
            let waiting = timeout(KEEP * 4, &mut waits).await;
            assert!(waiting.is_err(), "{kind}: {waiting:?}");
            let refused = rate.try_acquire("key").await;
            let Err(TryAcquireError::Redis(error)) = refused else {
                panic!("{kind}: {refused:?}");
            };
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{kind}");
            match hangs {
                true => server.resume().await.unwrap(),
                false => server.start_again().await.unwrap(),
            }
            let served = timeout(Duration::from_secs(20), waits).await;
            served.unwrap().unwrap().unwrap();
        }
    })
    .await;
}

/// Two processes, before, during and after the outage of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_share_each_goes_on() {
    each_kind(async |kind| {
        let (server, clock) = (own(kind).await, own(kind).await);
        let (per_second, burst) = (40, 4);
        let starts = Starts::new(&clock).await;
        let callers = (0..2).flat_map(|_| {
            let rate = builder(&server, "rate")
                .total(Quota::per_second(per_second).burst(burst))
                .when_away(WhenAway::LocalShare { processes: 2 });
            let rate = rate.borrow(0).keep(KEEP).build().unwrap();
            (0..4).map(move |_| rate.clone())
        });
        let callers = callers.map(|rate| {
            let starts = starts.clone();
            tokio::spawn(async move {
                loop {
                    rate.acquire("key").await.unwrap();
                    starts.record(0).await;
                }
            })
        });
        let callers = Vec::from_iter(callers);
        sleep(Duration::from_secs(1)).await;
        server.kill().await.unwrap();
        // Until the processes know that it is away.
        sleep(KEEP * 2).await;
        let away = starts.now().await;
        let running = Running::from_now();
        sleep(Duration::from_secs(3)).await;
        let was_away = running.micros();
        let back = starts.now().await;
        server.start_again().await.unwrap();
        sleep(Duration::from_millis(1_500)).await;
        let after = starts.now().await;
        let running = Running::from_now();
        sleep(Duration::from_millis(1_500)).await;
        let was_back = running.micros();
        let end = starts.now().await;
        callers.iter().for_each(tokio::task::JoinHandle::abort);

        let all = starts.of(None);
        let (per_second, burst) = (u64::from(per_second), u64::from(burst));
        let between = |from, to| {
            let times = all.iter().filter(|time| (from..to).contains(*time));
            Vec::from_iter(times.copied())
        };
        let while_away = between(away, back);
        println!("{kind}: {} while it is away", while_away.len());
        assert_within(&while_away, per_second, burst, KEEP);
        // All permits are used, except those on their way at the end.
        let least = |lasted| per_second * lasted / 1_000_000 * 8 / 10;
        let count = while_away.len() as u64;
        assert!(count >= least(was_away), "{kind}: {count}");
        // One more burst for each of the two changes.
        assert_within(&all, per_second, burst * 3, KEEP);
        let count = between(after, end).len() as u64;
        assert!(count >= least(was_back), "{kind}: {count}");
        // It was restarted, and has counted from there on.
        let calls = calls(&server).await;
        assert!(calls > 20, "{kind}: the server was asked {calls} times");
    })
    .await;
}

/// Callers come rarely, and the share of the process is enough for them.
#[tokio::test]
async fn a_server_that_is_back_is_found_by_few_callers() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate")
            .total(Quota::per_second(1_000))
            .when_away(WhenAway::LocalShare { processes: 1 });
        let rate = rate.borrow(0).keep(KEEP).build().unwrap();
        server.kill().await.unwrap();
        rate.acquire("key").await.unwrap();
        server.start_again().await.unwrap();
        let found = async {
            while calls(&server).await < 10 {
                rate.acquire("key").await.unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        };
        let found = timeout(Duration::from_secs(20), found).await;
        assert!(found.is_ok(), "{kind}: {}", calls(&server).await);
    })
    .await;
}

/// Each of these faults ends, and then everything goes on.
#[tokio::test]
async fn a_server_that_cannot_do_it_now_is_asked_again() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").total(Quota::per_second(1_000));
        let rate = rate.borrow(0).build().unwrap();
        rate.acquire("key").await.unwrap();
        for (begin, end) in [
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
            ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
            (
                "CONFIG SET min-replicas-to-write 1",
                "CONFIG SET min-replicas-to-write 0",
            ),
        ] {
            execute(&server, begin).await;
            let refused = rate.try_acquire("key").await;
            let Err(TryAcquireError::Redis(error)) = refused else {
                panic!("{kind}, {begin}: {refused:?}");
            };
            assert_eq!(error.kind(), ErrorKind::Unable, "{kind}, {begin}: {error}");
            execute(&server, end).await;
            let served = timeout(Duration::from_secs(20), rate.acquire("key")).await;
            served.unwrap().unwrap();
        }
    })
    .await;
}

/// Callers that wait get an error that does not pass.
#[tokio::test]
async fn a_refused_password_is_an_error() {
    each_kind(async |kind| {
        let builder = testkit_servers::Redis::builder(kind).password("c4n4ry-s3cr3t");
        let server = builder.start().await.unwrap();
        let wrong = format!("redis://:c4n4ry@127.0.0.1:{}/", server.port());
        let redis = keylane_redis::Redis::at(&wrong).unwrap();
        let rate = keylane_redis::SharedRate::builder(&redis, "rate");
        let rate = rate.total(Quota::per_second(1)).build().unwrap();
        let error = rate.acquire("key").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{kind}: {error}");
        let shown = format!("{error} {error:?} {rate:?}");
        assert!(!shown.contains("c4n4ry"), "{shown}");
    })
    .await;
}

/// The server, or a network, ends connections that are idle.
#[tokio::test]
async fn connections_that_are_lost_while_idle_refuse_no_permit() {
    each_kind(async |kind| {
        let server = own(kind).await;
        execute(&server, "CONFIG SET timeout 1").await;
        let proxy = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into());
        let proxy = proxy.await.unwrap();
        let redis = Redis::at(&format!("redis://127.0.0.1:{}/", proxy.port())).unwrap();
        let rate = SharedRate::builder(&redis, "idle").total(Quota::per_second(1_000));
        let rate = rate.borrow(0).keep(Duration::from_secs(60));
        let rate = rate.build().unwrap();
        rate.try_acquire("key").await.unwrap();
        until("the server has closed it", async || {
            proxy.traffic().open == 0
        })
        .await;
        rate.try_acquire("key").await.unwrap();
        proxy.reset();
        rate.try_acquire("key").await.unwrap();
        sleep(Duration::from_millis(200)).await;
        proxy.forget();
        let served = timeout(Duration::from_secs(120), rate.acquire("key")).await;
        served.unwrap().unwrap();
    })
    .await;
}
