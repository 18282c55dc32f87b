//! When a server has another history, and when it has the same.

use keylane_leader::ElectionStore;
use keylane_leader::store::{History, Stage};
use keylane_leases::Token;
use keylane_redis::{FenceError, RedisElections};
use keylane_testkit::scenario::until_async;
use testkit_servers::{Redis, RedisCluster, RedisKind};

use super::{Place, elections};
use crate::support::{each_kind, execute, own, proxy};

async fn history(store: &RedisElections) -> History {
    store.history().await.unwrap()
}

async fn follows(replica: &Redis) {
    until_async("the replica follows", async || {
        let info = execute(replica, "INFO replication").await;
        info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0")
    })
    .await;
}

/// The replica lacks the record of the newest term. The leader of that term writes nothing there,
/// and neither does the one of the term before, whose record is there.
#[tokio::test]
async fn a_promoted_replica_is_in_another_history() {
    each_kind(async |kind| {
        let primary = own(kind).await;
        let cable = proxy(primary.port()).await;
        let replica = own(kind).await;
        execute(&replica, &format!("REPLICAOF 127.0.0.1 {}", cable.port())).await;
        follows(&replica).await;
        let here = Place::new(elections(&primary.url(), "elections"), "jobs");
        let there = Place::new(elections(&replica.url(), "elections"), "jobs");
        let was = history(&here.store).await;
        assert_eq!(was, history(&here.store).await, "{kind}");
        // A replica that only follows is in the history of its primary.
        assert_eq!(was, history(&there.store).await, "{kind}");
        let old = here.grant().await;
        here.record(old, "a", Stage::Began).await;
        until_async("the record has arrived", async || {
            execute(&replica, "EXISTS {elections}:keylane:election:jobs").await == "1"
        })
        .await;
        cable.cut();
        here.release(old).await;
        let new = here.grant().await;
        here.record(new, "b", Stage::Began).await;
        execute(&replica, "REPLICAOF NO ONE").await;

        let now = history(&there.store).await;
        assert_ne!(now, was, "{kind}");
        let seen = there.look().await.term.unwrap();
        assert_eq!(seen.token, Token(old), "{kind}: the newest term is lost");
        for token in [old, new] {
            let write = there.store.fence("jobs", Token(token)).history(&was);
            let written = write.command("SET", "value", ["x"]).run().await;
            let is_fenced = matches!(written, Err(FenceError::Fenced));
            assert!(is_fenced, "{kind}: {written:?}");
        }
        // The one that was cut off does not know it, and goes on.
        assert_eq!(history(&here.store).await, was, "{kind}");
        // It learns of the other one, and is in its history.
        execute(&primary, &format!("REPLICAOF 127.0.0.1 {}", replica.port())).await;
        follows(&primary).await;
        until_async("it is in the new history", async || {
            here.store
                .history()
                .await
                .is_ok_and(|history| history == now)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_starts_again_is_in_another_history() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let store = elections(&server.url(), "elections");
        let mut seen = vec![history(&store).await];
        for is_killed in [true, false] {
            match is_killed {
                true => server.kill().await.unwrap(),
                false => server.stop().await.unwrap(),
            }
            server.start_again().await.unwrap();
            let mut now = None;
            until_async("it answers", async || {
                now = store.history().await.ok();
                now.is_some()
            })
            .await;
            seen.extend(now);
        }
        seen.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        seen.dedup();
        assert_eq!(seen.len(), 3, "{kind}: {seen:?}");
    })
    .await;
}

/// What is documented about replicas.
#[tokio::test]
async fn the_first_replica_makes_another_history_and_the_next_ones_do_not() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let store = elections(&server.url(), "elections");
        let alone = history(&store).await;
        let first = Redis::builder(kind).replica_of(&server);
        let first = first.start().await.unwrap();
        follows(&first).await;
        let with_one = history(&store).await;
        assert_ne!(with_one, alone, "{kind}");
        let second = Redis::builder(kind).replica_of(&server);
        let second = second.start().await.unwrap();
        follows(&second).await;
        assert_eq!(history(&store).await, with_one, "{kind}");
        for replica in [&first, &second] {
            replica.kill().await.unwrap();
        }
        first.start_again().await.unwrap();
        follows(&first).await;
        assert_eq!(history(&store).await, with_one, "{kind}");
        // No replica is there for longer than the backlog is kept for one.
        first.kill().await.unwrap();
        execute(&server, "CONFIG SET repl-backlog-ttl 1").await;
        until_async("the backlog is gone", async || {
            history(&store).await != with_one
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_user_who_may_not_ask_has_one_history() {
    each_kind(async |kind| {
        let server = own(kind).await;
        execute(&server, "ACL SETUSER plain on >secret ~* &* +@all -info").await;
        let url = server.url().replace("redis://", "redis://plain:secret@");
        let place = Place::new(elections(&url, "elections"), "jobs");
        let history = history(&place.store).await;
        assert_eq!(history.as_str(), "unknown", "{kind}");
        place.record(7, "a", Stage::Began).await;
        let write = place.store.fence("jobs", Token(7)).history(&history);
        write.command("SET", "value", ["x"]).run().await.unwrap();
    })
    .await;
}

/// The history of a namespace in a cluster is that of the node with its slot.
#[tokio::test]
async fn a_failover_in_a_cluster_changes_the_history_of_its_slots_alone() {
    let mut cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    cluster.add_replicas().await.unwrap();
    let urls = cluster.urls();
    let redis = keylane_redis::Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    let mut stores = Vec::new();
    for namespace in ["a", "b", "c", "d", "e", "f"] {
        let node = cluster.place_of(namespace).await.unwrap();
        let store = RedisElections::open(&redis, namespace).unwrap();
        let history = history(&store).await;
        stores.push((node, store, history));
    }
    let lost = stores[0].0;
    let is_other = |(node, _, _): &&(usize, RedisElections, History)| *node != lost;
    assert!(stores.iter().any(|store| is_other(&store)), "of one node");
    cluster.node(lost).kill().await.unwrap();
    until_async("a replica is promoted", async || {
        let now = stores[0].1.history().await;
        now.is_ok_and(|now| now != stores[0].2)
    })
    .await;
    for (node, store, was) in &stores {
        until_async("the node answers", async || store.history().await.is_ok()).await;
        assert_eq!(history(store).await != *was, *node == lost);
    }
}
