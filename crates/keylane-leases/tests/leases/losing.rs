//! Leases that are lost while they are in use.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use keylane_leases::error::{AcquireError, LeaseLost};
use keylane_leases::store::{LeaseStore, Wish};
use keylane_leases::{Leases, Owner};
use tokio::time::{Instant, sleep};

use crate::support::{Mood, Store, TTL, one, settle, two};

#[tokio::test(start_paused = true)]
async fn the_holder_knows_before_another_can_have_it() {
    for mood in [Mood::Fails, Mood::Hangs, Mood::Panics] {
        let (store, here, _there) = two();
        let began = Instant::now();
        let lease = here.acquire("key", TTL).await.unwrap();
        store.is(mood);
        assert_eq!(lease.lost().await, LeaseLost::RanOut);
        let lost = began.elapsed();
        assert_eq!(lease.check(), Err(LeaseLost::RanOut));
        // At most what the last renewal that came through has given it, and it ends before that.
        let wish = [Wish::new("key", TTL)];
        let answer = store.memory.acquire(&Owner::random(), &wish).await.unwrap();
        assert!(
            matches!(answer[0], keylane_leases::store::Answer::Taken { remaining } if remaining >= TTL / 10),
            "{mood:?}: {answer:?} after {lost:?}"
        );
        assert!(lost >= TTL * 8 / 10 && lost <= TTL, "{mood:?}: {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_dropped_before_it_is_said() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let guard = Guard(Arc::clone(&dropped));
    store.is(Mood::Hangs);
    let ran = lease.run(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    assert_eq!(ran.await, Err(LeaseLost::RanOut));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_ends_in_time_ends_well() {
    let (_store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    let ran = lease.run(async {
        sleep(TTL * 10).await;
        7
    });
    assert_eq!(ran.await, Ok(7));
    assert_eq!(lease.run(async { 8 }).await, Ok(8), "it is still held");
}

/// As after SIGSTOP: no timer has fired, no task has run, and the time is over.
#[tokio::test]
async fn after_a_pause_nothing_is_polled_that_was_under_way() {
    let ttl = Duration::from_millis(200);
    let lease = one(&Store::new()).acquire("key", ttl).await.unwrap();
    let polls = AtomicUsize::new(0);
    let mut ran = std::pin::pin!(lease.run(poll_fn(|_| {
        polls.fetch_add(1, Ordering::SeqCst);
        Poll::<()>::Pending
    })));
    let after = poll_fn(|cx| {
        assert!(ran.as_mut().poll(cx).is_pending());
        std::thread::sleep(ttl);
        Poll::Ready(ran.as_mut().poll(cx))
    });
    assert_eq!(after.await, Poll::Ready(Err(LeaseLost::RanOut)));
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

/// The task that keeps the leases may be in the queue of a worker that does not come back. What runs
/// is dropped in time all the same.
#[test]
fn a_blocked_worker_does_not_hold_up_the_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let ttl = Duration::from_millis(300);
    let (let_go, blocked) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let leases = one(&Store::new());
        let lease = leases.acquire("key", ttl).await.unwrap();
        let other = leases.acquire("other", ttl).await.unwrap();
        let ran = tokio::spawn(async move { lease.run(std::future::pending::<()>()).await });
        // Until the task of the leases waits: one that runs would go on where it is.
        sleep(ttl / 10).await;
        // It wakes the task of the leases, which goes to the queue of this worker, and blocks.
        let blocks = tokio::spawn(async move {
            drop(other);
            let _ = blocked.recv();
        });
        assert_eq!(ran.await.unwrap(), Err(LeaseLost::RanOut));
        let_go.send(()).unwrap();
        blocks.await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_over_is_lost() {
    let (store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    // Only an operator can do that before it has run out.
    let claim = keylane_leases::store::Claim::new("key", lease.token(), TTL);
    store.memory.release(here.owner(), &[claim]).await.unwrap();
    let thief = Owner::random();
    store
        .memory
        .acquire(&thief, &[Wish::new("key", TTL)])
        .await
        .unwrap();
    assert_eq!(lease.lost().await, LeaseLost::TakenOver);
    // The old one is dropped, and takes nothing from the new one.
    drop(lease);
    settle().await;
    assert!(here.try_acquire("key", TTL).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_back_in_time_costs_no_lease() {
    let (store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    // A call that hangs is given up after five seconds, so one that begins in time may be too late.
    for _ in 0..20 {
        for (mood, time) in [(Mood::Fails, TTL / 3), (Mood::Hangs, TTL / 6)] {
            store.is(mood);
            sleep(time).await;
            store.is(Mood::Well);
            sleep(TTL / 2).await;
            lease.check().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_can_be_acquired_anew() {
    let (store, here, _there) = two();
    let lease = here.acquire("key", TTL).await.unwrap();
    store.is(Mood::Fails);
    lease.lost().await;
    assert!(matches!(
        here.try_acquire("key", TTL).await,
        Err(AcquireError::Store(_))
    ));
    store.is(Mood::Well);
    let again = here.acquire("key", TTL).await.unwrap();
    assert!(again.token() > lease.token());
    drop(lease);
    settle().await;
    again.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_none_and_is_released() {
    let (store, here, there) = two();
    let ttl = Duration::from_secs(2);
    store.is(Mood::Delayed(Duration::from_secs(3)));
    let late = here.acquire("key", ttl).await;
    assert!(matches!(late, Err(AcquireError::Store(_))), "{late:?}");
    store.is(Mood::Well);
    settle().await;
    let _ = there.try_acquire("key", ttl).await.unwrap();
}

#[test]
fn a_runtime_that_ends_takes_its_leases_along() {
    let store = Store::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (leases, lease) = runtime.block_on(async {
        let leases: Leases = one(&store);
        let lease = leases.acquire("key", TTL).await.unwrap();
        (leases, lease)
    });
    drop(runtime);
    assert_eq!(lease.check(), Err(LeaseLost::Closed));
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(async {
        assert_eq!(lease.lost().await, LeaseLost::Closed);
        let refused = leases.acquire("another", TTL).await;
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
        lease.release().await;
        leases.close().await;
    });
}
