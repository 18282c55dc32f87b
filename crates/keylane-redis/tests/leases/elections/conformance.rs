//! The suites of both interfaces.

use std::sync::Arc;

use keylane_leader::conformance;
use keylane_redis::{Redis, RedisElections};
use testkit_servers::{RedisCluster, RedisKind, RedisSentinels};

use super::elections;
use crate::support::{each_kind, new_namespace, shared};

async fn check(store: RedisElections) {
    let store = Arc::new(store);
    let leases = keylane_leases::conformance::check(store.clone());
    let elections = conformance::check(store.clone(), conformance::SHORTEST);
    let end = conformance::check_end(store.clone());
    tokio::join!(leases, elections, end);
}

async fn conforms(kind: RedisKind) {
    check(elections(&shared(kind).await.url(), &new_namespace())).await;
}

#[tokio::test]
async fn elections_in_redis_7_conform() {
    conforms(RedisKind::Redis7).await;
}

#[tokio::test]
async fn elections_in_redis_8_conform() {
    conforms(RedisKind::Redis8).await;
}

#[tokio::test]
async fn elections_in_valkey_9_conform() {
    conforms(RedisKind::Valkey9).await;
}

#[tokio::test]
async fn elections_in_clusters_conform() {
    each_kind(async |kind| {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        // Some of them are not on the node that is subscribed.
        for namespace in ["a", "b", "{shop}jobs"] {
            check(RedisElections::open(&redis, namespace).unwrap()).await;
        }
    })
    .await;
}

#[tokio::test]
async fn elections_behind_sentinels_conform() {
    let kind = RedisKind::Redis8;
    let primary = testkit_servers::Redis::builder(kind).password("secret");
    let primary = primary.start().await.unwrap();
    let replica = testkit_servers::Redis::builder(kind).password("secret");
    let _replica = replica.replica_of(&primary).start().await.unwrap();
    let sentinels = RedisSentinels::start(&primary, 3).await.unwrap();
    let urls = sentinels.urls();
    let name = format!("redis://:secret@{}/", RedisSentinels::NAME);
    let redis = Redis::sentinel(urls.iter().map(String::as_str), &name).unwrap();
    check(RedisElections::open(&redis, "jobs").unwrap()).await;
}
