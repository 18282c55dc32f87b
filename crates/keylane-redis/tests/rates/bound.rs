//! The number of starts in a time, over all processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylane_redis::{Quota, Redis, SharedRate, TryAcquireError};
use testkit_servers::{RedisCluster, RedisKind};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Running, Starts, assert_within, builder, calls, each_kind, execute, new_name, own, shared,
};

const KEEP: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_keep_to_the_rates() {
    each_kind(async |kind| {
        for borrow in [0, 3] {
            three_processes(kind, borrow).await;
        }
    })
    .await;
}

/// Each process has callers on three keys; two of the keys would exceed the total.
async fn three_processes(kind: RedisKind, borrow: u32) {
    const KEYS: usize = 3;
    let (per_key, total) = ((20, 4), (50, 6));
    let (server, name) = (shared(kind).await, new_name());
    let starts = Starts::new(server).await;
    let processes = (0..3).map(|_| {
        let rate = builder(server, &name)
            .per_key(Quota::per_second(per_key.0).burst(per_key.1))
            .total(Quota::per_second(total.0).burst(total.1));
        rate.borrow(borrow).keep(KEEP).build().unwrap()
    });
    let processes = Vec::from_iter(processes);
    let running = Running::from_now();
    let callers = processes.iter().flat_map(|rate| {
        (0..KEYS * 3).map(|caller| {
            let (rate, starts) = (rate.clone(), starts.clone());
            tokio::spawn(async move {
                let key = caller % KEYS;
                loop {
                    rate.acquire(format!("key-{key}")).await.unwrap();
                    starts.record(key).await;
                }
            })
        })
    });
    let callers = Vec::from_iter(callers);
    sleep(Duration::from_secs(4)).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let lasted = running.micros();

    let all = starts.of(None);
    assert_within(&all, total.0.into(), total.1.into(), KEEP);
    for key in 0..KEYS {
        assert_within(
            &starts.of(Some(key)),
            per_key.0.into(),
            per_key.1.into(),
            KEEP,
        );
    }
    // All permits are used, except those on their way at the end.
    let due = u64::from(total.0) * lasted / 1_000_000;
    println!("{kind}, {borrow} borrowed: {} of {due}", all.len());
    assert!(all.len() as u64 >= due * 8 / 10, "{} of {due}", all.len());
}

#[tokio::test]
async fn a_burst_and_then_evenly() {
    each_kind(async |kind| {
        let (server, name) = (shared(kind).await, new_name());
        let rate =
            || builder(server, &name).per_key(Quota::per(1, Duration::from_secs(3_600)).burst(5));
        let processes = [(); 2].map(|()| rate().borrow(0).build().unwrap());
        for n in 0..5 {
            processes[n % 2].try_acquire("key").await.unwrap();
        }
        for rate in &processes {
            // The first answer comes from the server, the second one from memory.
            for _ in 0..2 {
                let Err(TryAcquireError::NotYet { after }) = rate.try_acquire("key").await else {
                    panic!("{kind}: more than the burst");
                };
                assert!(after <= Duration::from_secs(3_600), "{after:?}");
                assert!(after > Duration::from_secs(3_500), "{after:?}");
            }
        }
        processes[0].try_acquire("another").await.unwrap();
    })
    .await;
}

/// Two keys, each with its rate, and a lower total.
#[tokio::test]
async fn the_total_is_over_all_keys() {
    each_kind(async |kind| {
        let (server, name) = (shared(kind).await, new_name());
        let hour = Duration::from_secs(3_600);
        let rate = builder(server, &name)
            .per_key(Quota::per(1, hour).burst(4))
            .total(Quota::per(1, hour).burst(6));
        let rate = rate.borrow(0).build().unwrap();
        let mut granted = Vec::new();
        for n in 0..10 {
            let key = n % 2;
            match rate.try_acquire([key]).await {
                Ok(()) => granted.push(key),
                Err(TryAcquireError::NotYet { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(granted, [0, 1, 0, 1, 0, 1], "{kind}");
    })
    .await;
}

/// Callers that wait are served at the right time, and not before.
#[tokio::test]
async fn those_who_wait_are_served() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").total(Quota::per_second(20).burst(1));
        let rate = rate.build().unwrap();
        let began = Instant::now();
        let all = join_all((0..21).map(|n| rate.acquire(format!("{n}"))));
        let all = timeout(Duration::from_secs(20), all).await.unwrap();
        assert!(all.into_iter().all(|answer| answer.is_ok()), "{kind}");
        assert!(
            began.elapsed() >= Duration::from_millis(990),
            "{:?}",
            began.elapsed()
        );
        // One call for each new permit, and none in between.
        let calls = calls(&server).await;
        assert!(
            calls <= 21 * 3,
            "{kind}: the server was asked {calls} times"
        );
    })
    .await;
}

/// A server that is set to an earlier time grants nothing twice, and does not stop for long.
#[tokio::test]
async fn a_clock_that_was_set_back_costs_one_burst() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = builder(&server, "rate").total(Quota::per_second(10).burst(2));
        let rate = rate.borrow(0).build().unwrap();
        // The state that a clock left which was a day ahead.
        let ahead = Starts::new(&server).await.now().await + 24 * 3_600 * 1_000_000;
        let set = ["SET", "{rate}:keylane:rate:total", &format!("{ahead}000")];
        server.execute(&set).await.unwrap();
        let Err(TryAcquireError::NotYet { after }) = rate.try_acquire("").await else {
            panic!("{kind}: granted");
        };
        assert!(after <= Duration::from_millis(100), "{kind}: {after:?}");
        let granted = timeout(Duration::from_secs(10), rate.acquire(""));
        granted.await.unwrap().unwrap();
    })
    .await;
}

/// Nothing is rounded: each permit takes 1,234,567,891 nanoseconds.
#[tokio::test]
async fn parts_of_microseconds_count() {
    const EACH: u64 = 1_234_567_891;
    each_kind(async |kind| {
        let server = own(kind).await;
        let rate = Quota::per(1, Duration::from_nanos(EACH)).burst(5_000);
        let rate = builder(&server, "rate").per_key(rate);
        let rate = rate.borrow(0).build().unwrap();
        let starts = Starts::new(&server).await;
        let before = starts.now().await;
        for _ in 0..999 {
            rate.try_acquire("key").await.unwrap();
        }
        let after = starts.now().await;
        let kept = execute(&server, "GET {rate}:keylane:rate:key:key").await;
        let first = kept.parse::<u64>().unwrap() - 999 * EACH;
        assert_eq!(
            first % 1_000,
            0,
            "{kind}: the server's clock has microseconds"
        );
        assert!((before..=after).contains(&(first / 1_000)), "{kind}");
    })
    .await;
}

#[tokio::test]
async fn clusters_keep_to_the_rates() {
    each_kind(async |kind| {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        let hour = Duration::from_secs(3_600);
        let rate = SharedRate::builder(&redis, "rate")
            .per_key(Quota::per(1, hour).burst(2))
            .total(Quota::per(1, hour).burst(30));
        let rate = rate.borrow(0).build().unwrap();
        let answers = join_all((0..60).map(|n| rate.try_acquire([n % 20])));
        let answers = answers.await;
        assert_eq!(
            answers.iter().filter(|answer| answer.is_ok()).count(),
            30,
            "{kind}"
        );
    })
    .await;
}

/// If only the total is short, no key gets all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_wait_for_the_total_take_turns() {
    let server = shared(RedisKind::Redis8).await;
    let rate = builder(server, &new_name())
        .per_key(Quota::per_second(1_000).burst(100))
        .total(Quota::per_second(50).burst(2));
    let rate = rate.build().unwrap();
    let started: Arc<[AtomicUsize; 2]> = Arc::default();
    let callers = (0..20).map(|caller| {
        let (rate, started) = (rate.clone(), Arc::clone(&started));
        tokio::spawn(async move {
            let key = caller % 2;
            while started
                .iter()
                .map(|of| of.load(Ordering::SeqCst))
                .sum::<usize>()
                < 100
            {
                rate.acquire(["a", "b"][key]).await.unwrap();
                started[key].fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    for caller in Vec::from_iter(callers) {
        caller.await.unwrap();
    }
    let started = started.each_ref().map(|of| of.load(Ordering::SeqCst));
    assert!(started.iter().all(|count| *count >= 30), "{started:?}");
}
