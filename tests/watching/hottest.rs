//! `Dispatcher::hottest`: by depth, by age, by busy time; which keys are found, and which drop out.

use std::collections::HashMap;

use futures::FutureExt;
use keylane::watching::{HotBy, HotKey};
use keylane::{Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{MS, Random, SECOND};

use crate::support::{Handler, boxed};

fn keys(hottest: &[HotKey<u64>]) -> Vec<u64> {
    hottest.iter().map(|hot| hot.key).collect()
}

/// Numbers below `n`, the small ones often: the k-th about 1/k as often as the first.
fn zipf(n: u64, seed: u64) -> impl Iterator<Item = u64> {
    let total: f64 = (1..=n).map(|k| 1.0 / k as f64).sum();
    let mut random = Random::new(seed);
    std::iter::from_fn(move || {
        let mut left = random.fraction() * total;
        let mut k = 1;
        while k < n && left > 1.0 / k as f64 {
            left -= 1.0 / k as f64;
            k += 1;
        }
        Some(k - 1)
    })
}

/// A handler that waits at the gate.
fn waits_at(gate: &Gate) -> Handler {
    let gate = gate.clone();
    boxed(move |n| gate.pass().map(move |()| Ok(n)))
}

#[tokio::test(start_paused = true)]
async fn the_deepest_of_a_zipf_load_are_found_in_their_order() {
    const KEYS: u64 = 2_000;
    let gate = Gate::new();
    let orders = Dispatcher::builder(|n: &u64| *n)
        .capacity(100_000)
        .lane_capacity(100_000, Overflow::Wait)
        .concurrency(4)
        .spawn(waits_at(&gate))
        .unwrap();
    // More lanes than the table holds are deep, and the deepest come last.
    let mut depths = HashMap::<u64, usize>::new();
    let flat = (0..KEYS * 8).map(|n| n % KEYS);
    for key in flat.chain(zipf(KEYS, 42).take(20_000).map(|key| KEYS - 1 - key)) {
        orders.send(key).await.unwrap();
        *depths.entry(key).or_default() += 1;
    }
    tokio::time::sleep(SECOND).await;

    let hottest = orders.hottest(20, HotBy::Depth).await;
    let mut expected: Vec<_> = depths.values().copied().collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    let found: Vec<_> = hottest.iter().map(|hot| hot.depth).collect();
    assert_eq!(found, expected[..20]);
    for hot in &hottest {
        assert_eq!(
            Some(hot.depth),
            orders.inspect(&hot.key).map(|view| view.depth)
        );
        assert!(
            hot.age > SECOND - 10 * MS && hot.age < 2 * SECOND,
            "{hot:?}"
        );
    }

    // A key whose lane is gone is not shown.
    gate.open();
    tokio::time::sleep(SECOND).await;
    assert_eq!(orders.hottest(20, HotBy::Depth).await, []);
    orders.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_is_over_does_not_keep_newcomers_out() {
    let gate = Gate::new();
    let orders = Dispatcher::builder(|n: &u64| *n)
        .capacity(200_000)
        .lane_capacity(100_000, Overflow::Wait)
        .concurrency(1)
        .spawn(waits_at(&gate))
        .unwrap();
    for n in 0..300 * 128 {
        orders.send(n % 300).await.unwrap();
    }
    gate.open();
    tokio::time::sleep(SECOND).await;
    assert_eq!(orders.stats().lanes, 0);
    gate.shut();
    // Less deep than all of those were. No query came meanwhile.
    for n in 0..200 {
        orders
            .send(if n % 2 == 0 { 7_777 } else { 10_000 + n })
            .await
            .unwrap();
    }
    tokio::time::sleep(MS).await;
    let hottest = orders.hottest(1, HotBy::Depth).await;
    assert_eq!((hottest[0].key, hottest[0].depth), (7_777, 100));
    gate.open();
    orders.drain().await;
}

/// Among 10,000 others, whose handlers wait too, and which have more messages.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_blocked_for_long_is_found_by_age() {
    const BLOCKED: u64 = 123_456;
    let gate = Gate::new();
    let shut = gate.clone();
    let orders = Dispatcher::builder(|n: &u64| *n)
        .concurrency(64)
        .spawn(boxed(move |n| {
            let pass = (n == BLOCKED).then(|| shut.pass());
            async move {
                match pass {
                    Some(pass) => pass.await,
                    None => tokio::time::sleep(MS).await,
                }
                Ok(n)
            }
        }))
        .unwrap();
    // Enough of them that each place has been taken and left before.
    for n in 0..10_000 {
        orders.send(n).await.unwrap();
    }
    orders.send(BLOCKED).await.unwrap();
    for _ in 0..30 {
        for n in 0..10_000 {
            orders.send(n).await.unwrap();
        }
    }
    let hottest = orders.hottest(3, HotBy::Age).await;
    assert_eq!(hottest[0].key, BLOCKED, "{hottest:?}");
    assert_eq!(hottest[0].depth, 1);
    assert!(
        hottest[0].age > SECOND && hottest[1].age < hottest[0].age,
        "{hottest:?}"
    );
    gate.open();
    orders.drain().await;
    assert_eq!(orders.hottest(3, HotBy::Age).await, []);
}

#[tokio::test(start_paused = true)]
async fn heads_that_wait_for_a_retry_or_a_decision_are_found_by_the_age_of_their_message() {
    for halts in [false, true] {
        let orders = Dispatcher::builder(|n: &u64| n % 1_000_000).on_exhausted(OnExhausted::Halt);
        let orders = match halts {
            true => orders,
            false => orders.retry(Retry::fixed(40 * SECOND)),
        };
        let orders = orders
            .spawn(boxed(|n| async move {
                if n < 3_000 { Err("no") } else { Ok(n) }
            }))
            .unwrap();
        // More than there are places: the oldest stay.
        for n in 0..3_000 {
            orders.send(n).await.unwrap();
            if n % 100 == 0 {
                tokio::time::sleep(100 * MS).await;
            }
        }
        // Behind a head, and more recent than it.
        orders.send(2_000_000).await.unwrap();
        tokio::time::sleep(SECOND).await;
        let hottest = orders.hottest(101, HotBy::Age).await;
        assert_eq!((hottest[0].key, hottest[0].depth), (0, 2));
        assert!(hottest[0].age > 4 * SECOND - 10 * MS, "{:?}", hottest[0]);
        let mut found = keys(&hottest);
        found.sort_unstable();
        assert_eq!(found, (0..101).collect::<Vec<_>>());
        orders.abort().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_busiest_are_those_whose_handlers_have_waited_longest_in_sum() {
    let gate = Gate::new();
    // Key 1 waits for 10 ms, 100 times. Key 2 for 300 ms, once. The others for next to nothing.
    let shut = gate.clone();
    // Message 1,010 is one of key 1 that takes 10 ms; message 1,000 waits at the gate besides.
    let orders = Dispatcher::builder(|n: &u64| n / 1_000)
        .concurrency(8)
        // Sampled each 10 ms.
        .stuck_after(40 * MS)
        .spawn(boxed(move |n| {
            let ms = n % 1_000;
            let pass = (ms == 0).then(|| shut.pass());
            async move {
                tokio::time::sleep(MS * u32::try_from(ms).unwrap()).await;
                if let Some(pass) = pass {
                    pass.await;
                }
                Ok(n)
            }
        }))
        .unwrap();
    orders.send(2_300).await.unwrap();
    for n in 0..100 {
        orders.send(1_010).await.unwrap();
        for other in 0..20 {
            let key = 1_000 + n * 20 + other;
            orders.send(key * 1_000 + 1).await.unwrap();
        }
    }
    tokio::time::sleep(2 * SECOND).await;
    // Only keys with a lane are shown.
    assert_eq!(orders.hottest(9, HotBy::Busy).await, []);
    for key in [3, 2, 1] {
        orders.send(key * 1_000).await.unwrap();
    }
    tokio::time::sleep(50 * MS).await;
    let hottest = orders.hottest(9, HotBy::Busy).await;
    assert_eq!(keys(&hottest), [1, 2, 3]);
    // The timer's wheel is a little late each time; and 2,000 others share 256 counters.
    let expected = [1_050 * MS, 350 * MS, 50 * MS];
    for (hot, expected) in hottest.iter().zip(expected) {
        let most = expected + 130 * MS + hot.busy_error;
        assert!(
            hot.busy >= expected - 30 * MS && hot.busy <= most,
            "{hot:?}"
        );
        assert!(hot.busy_error < 50 * MS, "{hot:?}");
    }
    gate.open();
    orders.drain().await;
}

#[tokio::test(start_paused = true)]
async fn no_key_is_hot_where_nothing_waits() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .spawn(boxed(|n| async move { Ok(n) }))
        .unwrap();
    for by in [HotBy::Depth, HotBy::Age, HotBy::Busy] {
        assert_eq!(orders.hottest(10, by).await, []);
    }
    for n in 0..100 {
        orders.send(n % 2).await.unwrap();
    }
    orders.drain().await;
    for by in [HotBy::Depth, HotBy::Age, HotBy::Busy] {
        assert_eq!(orders.hottest(10, by).await, []);
    }
}
