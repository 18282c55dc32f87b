//! The conformance suite of stores, and thousands of leases.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use keylane_leases::conformance;
use keylane_redis::{Redis, RedisLeases};
use testkit_servers::{RedisCluster, RedisKind};

use crate::support::{each_kind, leases, new_namespace, shared, store};

#[tokio::test]
async fn redis_7_conforms() {
    conforms(RedisKind::Redis7).await;
}

#[tokio::test]
async fn redis_8_conforms() {
    conforms(RedisKind::Redis8).await;
}

#[tokio::test]
async fn valkey_9_conforms() {
    conforms(RedisKind::Valkey9).await;
}

async fn conforms(kind: RedisKind) {
    let server = shared(kind).await;
    conformance::check(store(&server.url(), &new_namespace())).await;
}

#[tokio::test]
async fn clusters_conform() {
    each_kind(async |kind| {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        let checks = [1, 8].map(|slots| {
            let store = RedisLeases::open(&redis, new_namespace()).unwrap();
            conformance::check(Arc::new(store.slots(slots).unwrap()))
        });
        join_all(checks).await;
        // With one hash tag all leases are on one node, and with eight they are not.
        let mut sizes = Vec::new();
        for node in cluster.nodes() {
            let size = node.execute(&["DBSIZE"]).await.unwrap();
            sizes.push(size.parse::<usize>().unwrap());
        }
        println!("{kind}: {sizes:?} keys");
        assert!(sizes.iter().all(|size| *size > 0), "{kind}: {sizes:?}");
    })
    .await;
}

#[tokio::test]
async fn redis_7_renews_thousands() {
    renews_thousands(RedisKind::Redis7).await;
}

#[tokio::test]
async fn redis_8_renews_thousands() {
    renews_thousands(RedisKind::Redis8).await;
}

#[tokio::test]
async fn valkey_9_renews_thousands() {
    renews_thousands(RedisKind::Valkey9).await;
}

/// Two owners, each with thousands of leases, for several times as long as one lasts.
async fn renews_thousands(kind: RedisKind) {
    const EACH: u32 = 5_000;
    let ttl = Duration::from_secs(5);
    let (server, namespace) = (shared(kind).await, new_namespace());
    let owners = Vec::from_iter((0..2).map(|_| leases(&server.url(), &namespace)));
    let held = join_all(owners.iter().enumerate().map(|(at, leases)| {
        let keys = (0..EACH).map(move |n| format!("{at}/{n}"));
        try_join_all(keys.map(|key| leases.acquire(key, ttl)))
    }));
    let held: Vec<_> = held.await.into_iter().map(Result::unwrap).collect();
    for _ in 0..4 {
        tokio::time::sleep(ttl / 2).await;
        for lease in held.iter().flatten() {
            lease.check().unwrap();
        }
    }
    // All leases are taken for the other owner, and free when their holder has closed.
    let (here, there) = (&owners[0], &owners[1]);
    assert!(there.try_acquire("0/7", ttl).await.is_err());
    here.close().await;
    let keys = (0..EACH).map(|n| format!("0/{n}"));
    let taken = try_join_all(keys.map(|key| there.try_acquire(key, ttl)));
    assert_eq!(taken.await.unwrap().len(), EACH as usize);
    there.close().await;
}
