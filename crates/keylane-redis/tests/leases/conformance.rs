//! The conformance suite of stores, and thousands of leases.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
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

async fn renews_thousands(kind: RedisKind) {
    let (server, namespace) = (shared(kind).await, new_namespace());
    let [here, there] = [(); 2].map(|()| leases(&server.url(), &namespace));
    conformance::check_many(&here, &there, 5_000, Duration::from_secs(5)).await;
}
