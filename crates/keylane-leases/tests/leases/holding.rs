//! Leases that are granted, renewed, waited for and released.

use std::sync::Arc;
use std::time::Duration;

use keylane_leases::error::{AcquireError, LeaseLost};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Mood, Store, TTL, one, settle, two};

#[tokio::test(start_paused = true)]
async fn one_holder_at_a_time() {
    let (_store, here, there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    assert_eq!(&lease.key()[..], b"key");
    lease.check().unwrap();
    for other in [&here, &there] {
        match other.try_acquire("key", TTL).await {
            Err(AcquireError::Taken { remaining }) => assert!(remaining <= TTL),
            other => panic!("{other:?}"),
        }
    }
    assert!(there.try_acquire("another key", TTL).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_as_long_as_it_is_held() {
    let (_store, here, there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    for _ in 0..100 {
        sleep(TTL).await;
        lease.check().unwrap();
        assert!(there.try_acquire("key", TTL).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_goes_to_those_that_wait() {
    let (_store, here, there) = two();
    let mut last = here.acquire("key", TTL).await.unwrap();
    for waits in [&here, &there, &here, &there] {
        let wait = tokio::spawn({
            let leases = waits.clone();
            async move { leases.acquire("key", TTL).await.unwrap() }
        });
        sleep(TTL * 3).await;
        assert!(!wait.is_finished());
        let token = last.token();
        drop(last);
        let since = Instant::now();
        last = wait.await.unwrap();
        assert!(last.token() > token);
        // By what another process looks again, and within one at once.
        assert!(since.elapsed() < Duration::from_millis(650));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_awaited_is_done() {
    let (_store, here, there) = two();
    for _ in 0..10 {
        here.acquire("key", TTL).await.unwrap().release().await;
        there.try_acquire("key", TTL).await.unwrap().release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_up_has_ended_here_and_not_in_the_store() {
    let (store, here, there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    lease.give_up();
    assert_eq!(lease.check(), Err(LeaseLost::Released));
    assert_eq!(lease.held_until(), None);
    // It is renewed there, and stays over here.
    sleep(TTL * 2).await;
    assert!(store.memory.holder(b"key").is_some());
    assert_eq!(lease.run(async {}).await, Err(LeaseLost::Released));
    lease.release().await;
    there.try_acquire("key", TTL).await.unwrap().release().await;
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_asked_for_at_a_time_share_calls() {
    let store = Store::new();
    let leases = one(&store);
    // What comes while calls are under way shares the next one.
    store.is(Mood::Late(Duration::from_millis(5)));
    let asked = (0..2_500).map(|n: u32| leases.acquire(n.to_be_bytes().to_vec(), TTL));
    let all = futures::future::try_join_all(asked).await.unwrap();
    assert_eq!(all.len(), 2_500);
    let sum = |calls: &std::sync::Mutex<Vec<usize>>| {
        let calls = calls.lock().unwrap();
        (calls.len(), calls.iter().sum::<usize>())
    };
    let (calls, keys) = sum(&store.asked);
    assert!(calls <= 8 && keys == 2_500, "{calls} calls for {keys} keys");
    sleep(TTL).await;
    let (calls, keys) = sum(&store.renewed);
    assert!(
        (6..=24).contains(&calls) && keys >= 5_000,
        "{calls} calls for {keys} keys"
    );
    drop(all);
    sleep(TTL).await;
    let (calls, keys) = sum(&store.released);
    assert!(calls <= 4 && keys == 2_500, "{calls} calls for {keys} keys");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_leaves_no_lease() {
    let (store, here, there) = two();
    store.is(Mood::Late(Duration::from_secs(1)));
    // Dropped while the store is asked: it grants the lease, and nothing would release it.
    let dropped = timeout(Duration::from_millis(500), here.acquire("key", TTL));
    assert!(dropped.await.is_err());
    store.is(Mood::Well);
    sleep(Duration::from_secs(1)).await;
    settle().await;
    let _ = there.try_acquire("key", TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_polled_does_nothing() {
    let (store, here, _there) = two();
    drop(here.acquire("key", TTL));
    settle().await;
    assert!(store.asked.lock().unwrap().is_empty());
}

#[test]
fn a_lease_may_be_dropped_on_any_thread() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::new();
    let (lease, there) = runtime.block_on(async {
        let lease = one(&store).acquire("key", TTL).await.unwrap();
        (lease, one(&store))
    });
    let store = Arc::clone(&store);
    std::thread::spawn(move || drop(lease)).join().unwrap();
    runtime.block_on(async {
        let _ = there.acquire("key", TTL).await.unwrap();
    });
    drop(store);
}

#[tokio::test(start_paused = true)]
async fn one_of_many_that_wait_for_a_key_asks_the_store() {
    const WAITERS: usize = 20;
    let (store, here, there) = two();
    let lease = there.acquire("key", TTL).await.unwrap();
    let waits = (0..WAITERS).map(|_| {
        let here = here.clone();
        tokio::spawn(async move { drop(here.acquire("key", TTL).await.unwrap()) })
    });
    let waits = Vec::from_iter(waits);
    let calls = || store.asked.lock().unwrap().len();
    settle().await;
    let before = calls();
    assert!(
        before <= 1 + 2,
        "one for each holder, and one that waits: {before}"
    );
    sleep(TTL).await;
    // Each looks again after 375 milliseconds at the earliest.
    let (calls, most) = (calls() - before, TTL.as_millis() as usize / 375);
    assert!(calls <= most, "{calls} calls, at most {most} of one caller");
    // One that goes away is no burden for the others.
    waits[0].abort();
    waits[7].abort();
    drop(lease);
    for (at, waits) in waits.into_iter().enumerate() {
        let granted = waits.await;
        assert!(granted.is_ok() || at == 0 || at == 7, "{at}: {granted:?}");
    }
}
