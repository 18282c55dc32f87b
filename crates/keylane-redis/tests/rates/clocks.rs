//! The clock of the server is set while permits are taken.

use std::time::Duration;

use keylane_redis::{Quota, TryAcquireError};
use testkit_servers::Redis;
use tokio::time::{sleep, timeout};

use crate::support::{Starts, builder, each_kind, execute};

const HOUR: i64 = 3_600;

/// A rate goes on at any clock time: with one more burst at most.
#[tokio::test]
async fn a_clock_that_is_set_stops_no_rate() {
    each_kind(async |kind| {
        let server = Redis::builder(kind).own_clock().start().await.unwrap();
        let rate = builder(&server, "rate").total(Quota::per_second(20).burst(3));
        let rate = rate.borrow(0).build().unwrap();
        for ahead in [0, -HOUR, 0, HOUR, 0, -HOUR, HOUR, -HOUR] {
            server.set_clock(ahead).unwrap();
            let mut at_once = 0;
            while rate.try_acquire("").await.is_ok() {
                at_once += 1;
                assert!(at_once < 20, "{kind}, {ahead}: more than a burst");
            }
            let next = timeout(Duration::from_secs(10), rate.acquire(""));
            next.await.expect("it goes on").unwrap();
        }
    })
    .await;
}

/// In the year 2261 a microsecond is more than a script can count to exactly.
#[tokio::test]
async fn nothing_is_rounded_for_ever() {
    const EACH: u64 = 1_234_567_891;
    each_kind(async |kind| {
        let server = Redis::builder(kind).own_clock().start().await.unwrap();
        server.set_clock(7_389_000_000).unwrap();
        let rate = Quota::per(1, Duration::from_nanos(EACH)).burst(500);
        let rate = builder(&server, "rate").per_key(rate);
        let rate = rate.borrow(0).build().unwrap();
        let starts = Starts::new(&server).await;
        // The server keeps the time of its last turn for a moment.
        let is_set = async {
            while starts.now().await <= 1 << 53 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let is_set = timeout(Duration::from_secs(10), is_set);
        is_set.await.unwrap_or_else(|_| panic!("{kind}"));
        let before = starts.now().await;
        for _ in 0..499 {
            rate.try_acquire("key").await.unwrap();
        }
        let after = starts.now().await;
        let kept = execute(&server, "GET {rate}:keylane:rate:key:key").await;
        let first = kept.parse::<u64>().unwrap() - 499 * EACH;
        assert_eq!(
            first % 1_000,
            0,
            "{kind}: the server's clock has microseconds"
        );
        assert!((before..=after).contains(&(first / 1_000)), "{kind}");
    })
    .await;
}

/// The longest rate, with stored values at the limits of their type.
#[tokio::test]
async fn what_is_kept_may_be_anything() {
    const DAYS: Duration = Duration::from_secs(100 * 24 * 3_600);
    each_kind(async |kind| {
        let server = Redis::builder(kind).own_clock().start().await.unwrap();
        let rate = builder(&server, "rate").per_key(Quota::per(1, DAYS));
        let rate = rate.borrow(0).build().unwrap();
        for (place, kept) in [u64::MIN, 1 << 53, i64::MAX as u64, u64::MAX]
            .into_iter()
            .enumerate()
        {
            let key = format!("key-{place}");
            let kept = format!("{kept:020}");
            let set = ["SET", &format!("{{rate}}:keylane:rate:key:{key}"), &kept];
            server.execute(&set).await.unwrap();
            let first = rate.try_acquire(key.clone()).await;
            let is_past = place < 2;
            assert_eq!(first.is_ok(), is_past, "{kind}, {kept}: {first:?}");
            let Err(TryAcquireError::NotYet { after }) = rate.try_acquire(key).await else {
                panic!("{kind}, {kept}: more than one");
            };
            assert!(
                after <= DAYS && after > DAYS - Duration::from_secs(60),
                "{kind}: {after:?}"
            );
        }
    })
    .await;
}
