//! The suite of stores, and leases by the thousand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
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

async fn renews_thousands(kind: Kind) {
    let place = Place::new(kind).await;
    let (here, there) = (place.leases().await, place.leases().await);
    conformance::check_many(&here, &there, 2_000, Duration::from_secs(5)).await;
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
