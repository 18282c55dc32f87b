//! Limits, and bad input.

use std::time::Duration;

use keylane_leases::error::{AcquireError, OpenError};
use keylane_leases::store::LeaseStore;
use keylane_leases::{Leases, MemoryStore, Settings};
use tokio::time::{Instant, sleep};

use crate::support::{Mood, Store, TTL, one_with, settle, two};

#[tokio::test(start_paused = true)]
async fn no_more_leases_than_told() {
    let store = Store::new();
    let leases = one_with(&store, Settings::new().most(2));
    let first = leases.acquire("a", TTL).await.unwrap();
    let _second = leases.acquire("b", TTL).await.unwrap();
    let full = leases.try_acquire("c", TTL).await;
    assert!(matches!(full, Err(AcquireError::Full)), "{full:?}");
    let waits = tokio::spawn({
        let leases = leases.clone();
        async move { leases.acquire("c", TTL).await.unwrap() }
    });
    sleep(TTL).await;
    assert!(!waits.is_finished());
    drop(first);
    let third = waits.await.unwrap();
    store.is(Mood::Fails);
    third.lost().await;
    store.is(Mood::Well);
    // What is lost takes no place.
    let _ = leases.try_acquire("d", TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_name_of_an_owner_is_none() {
    let here = one_with(&Store::new(), Settings::new().owner(""));
    let process = format!("-{}-", std::process::id());
    assert!(here.owner().as_str().contains(&process), "{}", here.owner());
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_a_key_is_asked_for_within_a_time_and_until_the_close() {
    let store = Store::new();
    let named = Settings::new().owner("billing 3");
    let (here, there) = (one_with(&store, named), one_with(&store, Settings::new()));
    assert_eq!(there.held_by("key").await, Ok(None));
    let lease = here.acquire("key", TTL).await.unwrap();
    let holder = there.held_by("key").await.unwrap().unwrap();
    assert!(holder.owner.starts_with("billing_3-"), "{holder:?}");
    assert_eq!(&*holder.owner, here.owner().as_str());
    assert_eq!(holder.token, lease.token());
    store.is(Mood::Hangs);
    let silent = there.held_by("key").await.unwrap_err();
    assert_eq!(
        silent.to_string(),
        "the lease store failed: no answer within 5s"
    );
    store.is(Mood::Panics);
    let panicked = there.held_by("key").await.unwrap_err();
    assert_eq!(
        panicked.to_string(),
        "the lease store failed: a call panicked"
    );
    store.is(Mood::Well);
    there.close().await;
    let closed = there.held_by("key").await.unwrap_err();
    assert_eq!(
        closed.to_string(),
        "the lease store failed: the leases are closed"
    );
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_for_holders_take_turns() {
    let (store, here, there) = two();
    let looked = || store.looked.lock().unwrap().len();
    let ask = |leases: &Leases| {
        let leases = leases.clone();
        tokio::spawn(async move { leases.held_by("key").await })
    };
    let second = Duration::from_secs(1);
    store.is(Mood::Late(second));
    let all = [ask(&here), ask(&here), ask(&here), ask(&there)];
    // One of each handle.
    settle().await;
    assert_eq!(looked(), 2);
    sleep(second / 2).await;
    assert_eq!(looked(), 2);
    let before = Instant::now();
    for asked in all {
        assert_eq!(asked.await.unwrap(), Ok(None));
    }
    assert_eq!((looked(), before.elapsed()), (4, second * 5 / 2));
    // One that is dropped gives its turn up. The wait is a part of the time for an answer.
    store.is(Mood::Hangs);
    let dropped = ask(&here);
    settle().await;
    let last = ask(&here);
    sleep(second).await;
    dropped.abort();
    assert!(last.await.unwrap().is_err());
    assert_eq!((looked(), before.elapsed()), (6, second * 15 / 2));
}

#[tokio::test(start_paused = true)]
async fn a_refused_lease_takes_no_place() {
    let (store, here, _there) = two();
    let _taken = here.acquire("key", TTL).await.unwrap();
    let leases = one_with(&store, Settings::new().most(1));
    for _ in 0..3 {
        let taken = leases.try_acquire("key", TTL).await;
        assert!(
            matches!(taken, Err(AcquireError::Taken { .. })),
            "{taken:?}"
        );
    }
    store.is(Mood::Fails);
    let failed = leases.try_acquire("key", TTL).await;
    assert!(matches!(failed, Err(AcquireError::Store(_))), "{failed:?}");
    store.is(Mood::Well);
    let _ = leases.try_acquire("another", TTL).await.unwrap();
    settle().await;
}

#[tokio::test]
async fn times_to_live_have_limits() {
    let (_store, here, _there) = two();
    let day = Duration::from_secs(24 * 60 * 60);
    let wrong = [
        Duration::ZERO,
        Duration::from_millis(99),
        day * 2,
        Duration::MAX,
    ];
    for ttl in wrong {
        let refused = here.acquire("key", ttl).await;
        assert!(matches!(refused, Err(AcquireError::Ttl(shown)) if shown == ttl));
        let refused = here.try_acquire("key", ttl).await;
        assert!(matches!(refused, Err(AcquireError::Ttl(_))));
    }
    for ttl in [Duration::from_millis(100), day] {
        here.acquire("key", ttl).await.unwrap().release().await;
    }
}

#[test]
fn settings_that_are_zero_are_refused_by_name() {
    let open = |settings| {
        let store: std::sync::Arc<dyn LeaseStore> = std::sync::Arc::new(MemoryStore::new());
        Leases::open_with(store, settings).map(drop)
    };
    let settings = Settings::new;
    let zeros = [
        ("most", settings().most(0)),
        ("batch", settings().batch(0)),
        ("call_limit", settings().call_limit(Duration::ZERO)),
        ("look_again", settings().look_again(Duration::ZERO)),
    ];
    for (name, settings) in zeros {
        assert_eq!(open(settings), Err(OpenError::Zero(name)));
    }
    assert_eq!(open(settings()), Err(OpenError::NoRuntime));
    let bare = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _entered = bare.enter();
    assert_eq!(open(settings()), Err(OpenError::NoTimers));
}

#[tokio::test(start_paused = true)]
async fn debug_shows_no_key() {
    let (_store, here, _there) = two();
    let lease = here.acquire("secret", TTL).await.unwrap();
    assert!(!format!("{lease:?} {here:?}").contains("secret"));
}
