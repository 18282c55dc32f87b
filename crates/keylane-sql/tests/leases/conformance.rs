//! The suite of stores, and leases by the thousand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use futures::{StreamExt, TryStreamExt, stream};
use keylane_leases::{Leases, Settings, conformance};

use crate::support::{Kind, Place};

#[tokio::test]
async fn postgres_conforms() {
    conforms(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_conforms() {
    conforms(Kind::MariaDb).await;
}

async fn conforms(kind: Kind) {
    let place = Place::new(kind).await;
    conformance::check(Arc::new(place.store().await)).await;
}

#[tokio::test]
async fn postgres_renews_thousands() {
    renews_thousands(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_renews_thousands() {
    renews_thousands(Kind::MariaDb).await;
}

/// Two owners, each with leases by the thousand, for several times as long as one lasts.
async fn renews_thousands(kind: Kind) {
    const EACH: u32 = 2_000;
    let place = Place::new(kind).await;
    let ttl = Duration::from_secs(5);
    let owners = join_all((0..2).map(|_| place.leases())).await;
    let held = owners.iter().enumerate().map(|(at, leases)| {
        let keys = (0..EACH).map(move |n| format!("{at}/{n}"));
        // Not all at once: a call waits five seconds for a connection, and no longer.
        let acquired = keys.map(|key| leases.acquire(key, ttl));
        stream::iter(acquired)
            .buffer_unordered(100)
            .try_collect::<Vec<_>>()
    });
    let held = try_join_all(held).await.unwrap();
    for _ in 0..4 {
        tokio::time::sleep(ttl / 2).await;
        for lease in held.iter().flatten() {
            lease.check().unwrap();
        }
    }
    // All of it is taken for the other one, and free when its holder has closed.
    let [here, there] = &owners[..] else {
        unreachable!("there are two")
    };
    assert!(there.try_acquire("0/7", ttl).await.is_err());
    here.close().await;
    let keys = (0..EACH).map(|n| format!("0/{n}"));
    let taken = keys.map(|key| there.try_acquire(key, ttl));
    let taken = stream::iter(taken).buffer_unordered(100);
    assert_eq!(
        taken.try_collect::<Vec<_>>().await.unwrap().len(),
        EACH as usize
    );
    there.close().await;
}

#[tokio::test]
async fn postgres_removes_what_is_old() {
    removes_what_is_old(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_removes_what_is_old() {
    removes_what_is_old(Kind::MariaDb).await;
}

async fn removes_what_is_old(kind: Kind) {
    let place = Place::new(kind).await;
    let store = Arc::new(place.store().await);
    let leases = Leases::open_with(store.clone(), Settings::new()).unwrap();
    let ttl = Duration::from_secs(60);
    let keys = (0..2_500).map(|n: u32| n.to_string());
    let all = try_join_all(keys.map(|key| leases.acquire(key, ttl)));
    let mut all = all.await.unwrap();
    let last = all.pop().unwrap();
    let tokens = all.iter().map(|lease| lease.token());
    let highest = tokens.max().unwrap();
    for lease in all {
        lease.release().await;
    }
    assert_eq!(store.remove_old().await.unwrap(), 0, "they ended just now");
    place.age_leases().await;
    assert_eq!(store.remove_old().await.unwrap(), 2_499);
    last.check().unwrap();
    // Nothing is known of the key any more, and its tokens grow all the same.
    let again = leases.acquire("0", ttl).await.unwrap();
    assert!(again.token() > highest);
}
