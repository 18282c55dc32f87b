//! The costs of a rate: calls and leftovers.

use std::time::Duration;

use futures::future::join_all;
use keylane_redis::Quota;
use testkit_servers::{Fsync, Redis, RedisKind};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{builder, calls, each_kind, execute, own};

/// Permits are borrowed, so that most callers do not wait for the server.
#[tokio::test]
async fn most_callers_do_not_wait_for_the_server() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").per_key(Quota::per_second(1_000_000));
        let rate = rate.borrow(100).build().unwrap();
        for _ in 0..5_000 {
            rate.acquire("key").await.unwrap();
        }
        let with = calls(&server).await;
        println!("{kind}: {with} calls");
        assert!(with < 5_000 / 20, "{kind}: {with} calls");
    })
    .await;
}

#[tokio::test]
async fn callers_at_a_time_share_a_call() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").per_key(Quota::per_second(1_000));
        let rate = rate.borrow(0).build().unwrap();
        let all = join_all((0..4_000_u32).map(|n| rate.acquire((n % 1_000).to_be_bytes())));
        // All callers come before the task that asks runs. With a budget, the first few would go
        // ahead.
        assert!(unconstrained(all).await.iter().all(Result::is_ok));
        let calls = calls(&server).await;
        // The first call contains only the callers that had come before it.
        assert!(calls <= 5, "{kind}: {calls} calls");
    })
    .await;
}

#[tokio::test]
async fn keys_that_are_idle_leave_nothing_behind() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate")
            .per_key(Quota::per_second(10))
            .total(Quota::per_second(100_000));
        let rate = rate.build().unwrap();
        let all = join_all((0..2_000_u32).map(|n| {
            let rate = &rate;
            async move {
                rate.acquire([vec![7; n as usize % 90], n.to_be_bytes().into()].concat())
                    .await
            }
        }));
        assert!(all.await.iter().all(Result::is_ok));
        let gone = async {
            while execute(&server, "DBSIZE").await != "0" {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let gone = timeout(Duration::from_secs(20), gone).await;
        assert!(gone.is_ok(), "{kind}: {}", execute(&server, "DBSIZE").await);
    })
    .await;
}

#[tokio::test]
async fn scripts_that_are_forgotten_cost_nothing() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").total(Quota::per_second(1_000));
        let rate = rate.borrow(0).build().unwrap();
        for _ in 0..20 {
            execute(&server, "SCRIPT FLUSH").await;
            rate.try_acquire("key").await.unwrap();
        }
    })
    .await;
}

/// By hand, in release: `cargo test --release -p keylane-redis --test rates cost -- --ignored
/// --nocapture`
#[tokio::test]
#[ignore = "measures"]
async fn cost() {
    const COUNT: u32 = 200_000;
    for kind in RedisKind::ALL {
        let server = Redis::builder(kind).appendfsync(Fsync::EverySecond).start();
        let server = server.await.unwrap();
        let rate = builder(&server, "rate").per_key(Quota::per_second(100_000_000));
        // As by default.
        let rate = rate.keep(Duration::from_secs(1));
        for borrow in [0, 10, 100, 1_000] {
            let rate = rate.clone().borrow(borrow).build().unwrap();
            let count = if borrow == 0 { COUNT / 20 } else { COUNT };
            execute(&server, "CONFIG RESETSTAT").await;
            let began = Instant::now();
            for _ in 0..count {
                rate.acquire("key").await.unwrap();
            }
            let each = began.elapsed() / count;
            let calls = calls(&server).await;
            println!("{kind}, {borrow} borrowed: {each:?} each, {calls} calls for {count}");
        }
        let rate = rate.clone().borrow(0).build().unwrap();
        execute(&server, "CONFIG RESETSTAT").await;
        let began = Instant::now();
        for _ in 0..4 {
            let all = join_all((0..50_000_u32).map(|n| rate.acquire(n.to_be_bytes())));
            assert!(all.await.iter().all(Result::is_ok));
        }
        let each = began.elapsed() / COUNT;
        let stats = execute(&server, "INFO commandstats").await;
        let scripts = stats.lines().find(|line| line.contains("evalsha")).unwrap();
        println!("{kind}, 50,000 keys at a time: {each:?} each; {scripts}");
    }
}
