//! How leases come to an end as a whole.

use std::sync::mpsc;
use std::time::Duration;

use keylane_leases::error::{AcquireError, LeaseLost};
use tokio::time::{Instant, sleep};

use crate::support::{Mood, Store, TTL, one, settle, two};

#[tokio::test(start_paused = true)]
async fn a_close_ends_and_releases_all() {
    let (_store, here, there) = two();
    let (a, b) = (
        here.acquire("a", TTL).await.unwrap(),
        here.acquire("b", TTL).await.unwrap(),
    );
    let ran = tokio::spawn(async move { a.run(std::future::pending::<()>()).await });
    settle().await;
    here.close().await;
    assert_eq!(ran.await.unwrap(), Err(LeaseLost::Closed));
    assert_eq!(b.check(), Err(LeaseLost::Closed));
    for name in ["a", "b"] {
        let _ = there.try_acquire(name, TTL).await.unwrap();
    }
    let refused = here.acquire("c", TTL).await;
    assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
    here.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_close_answers_those_that_wait() {
    let (_store, here, there) = two();
    let _lease = here.acquire("key", TTL).await.unwrap();
    let waits = [&here, &there].map(|leases| {
        let leases = leases.clone();
        tokio::spawn(async move { leases.acquire("key", TTL).await })
    });
    sleep(TTL).await;
    there.close().await;
    let [beside, waits] = waits;
    let refused = waits.await.unwrap();
    assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
    here.close().await;
    let refused = beside.await.unwrap();
    assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_close_beside_a_store_that_hangs_comes_to_an_end() {
    let (store, here, _there) = two();
    let _lease = here.acquire("key", TTL).await.unwrap();
    store.is(Mood::Hangs);
    let asked = tokio::spawn({
        let here = here.clone();
        async move { here.acquire("another", TTL).await }
    });
    settle().await;
    let began = Instant::now();
    here.close().await;
    assert!(
        began.elapsed() <= Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let refused = asked.await.unwrap();
    assert!(
        matches!(refused, Err(AcquireError::Closed | AcquireError::Store(_))),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_store_grants_during_a_close_is_released() {
    let (store, here, there) = two();
    store.is(Mood::Late(Duration::from_secs(1)));
    let asked = tokio::spawn({
        let here = here.clone();
        async move { here.acquire("key", TTL).await }
    });
    settle().await;
    store.is(Mood::Well);
    here.close().await;
    assert!(matches!(asked.await.unwrap(), Err(AcquireError::Closed)));
    let _ = there.try_acquire("key", TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_the_handles() {
    let (store, here, there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    drop(here);
    sleep(TTL * 5).await;
    lease.check().unwrap();
    assert!(there.try_acquire("key", TTL).await.is_err());
    lease.release().await;
    let _ = there.try_acquire("key", TTL).await.unwrap();
    let calls = store.renewed.lock().unwrap().len();
    sleep(TTL * 5).await;
    assert_eq!(
        store.renewed.lock().unwrap().len(),
        calls,
        "the task has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_lease_runs_on_until_the_close() {
    let store = Store::new();
    let (here, there) = (one(&store), one(&store));
    std::mem::forget(here.acquire("key", TTL).await.unwrap());
    sleep(TTL * 5).await;
    assert!(there.try_acquire("key", TTL).await.is_err());
    here.close().await;
    let _ = there.try_acquire("key", TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_again() {
    for mood in [Mood::Fails, Mood::Panics] {
        let (store, here, there) = two();
        let leases = [
            here.acquire("a", TTL).await.unwrap(),
            here.acquire("b", TTL).await.unwrap(),
        ];
        store.is(mood);
        for lease in leases {
            lease.release().await;
        }
        store.is(Mood::Well);
        // Long before they run out.
        sleep(TTL / 10).await;
        for name in ["a", "b"] {
            let _ = there.try_acquire(name, TTL).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_tried_again_until_the_lease_has_run_out() {
    let (store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    store.is(Mood::Fails);
    lease.release().await;
    sleep(TTL).await;
    let tries = store.released.lock().unwrap().len();
    assert!((3..=10).contains(&tries), "{tries}");
    sleep(TTL * 10).await;
    assert_eq!(store.released.lock().unwrap().len(), tries, "it is over");
}

#[tokio::test(start_paused = true)]
async fn a_close_tries_a_failed_release_once_more() {
    let (store, here, there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    store.is(Mood::Fails);
    lease.release().await;
    store.is(Mood::Well);
    here.close().await;
    let _ = there.try_acquire("key", TTL).await.unwrap();
}

/// With the paused clock, time passes only when every task waits.
#[test]
fn a_release_that_is_due_again_waits_for_the_calls_in_progress() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let store = Store::new();
            let leases = one(&store);
            let mut held = Vec::new();
            for key in 0..6_u8 {
                held.push(leases.acquire(vec![key], TTL).await.unwrap());
            }
            store.is(Mood::Fails);
            held.pop().unwrap().release().await;
            store.is(Mood::Hangs);
            // More calls than there are at a time.
            for lease in held {
                drop(lease);
                settle().await;
            }
            sleep(TTL).await;
        });
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(120))
        .expect("the task waits");
}
