//! A cluster of three primaries with a replica each: primaries are killed, and slots move.

use std::time::Duration;

use keylane_testkit::scenario::{Random, until_async as until};
use testkit_processes::Verdict;
use testkit_servers::{RedisCluster, RedisKind};
use tokio::time::sleep;

use crate::worker::{Kind, failovers, show_log, trial};

async fn tried(server: RedisKind, kind: Kind) -> Verdict {
    show_log();
    let mut cluster = RedisCluster::start(server, 3).await.unwrap();
    cluster.add_replicas().await.unwrap();
    let mut trial = trial(kind, &cluster.urls().join(","));
    trial.goes_on().await;
    let mut random = Random::new(5);
    for number in 0..failovers() as usize {
        // One of those that are used.
        let key = kind.place_of(random.below(12));
        let at = place_of(&cluster, &key).await;
        match number % 3 {
            1 => {
                trial.fault();
                let to = next(&cluster, at).await;
                cluster.move_slot(&key, to).await.unwrap();
                trial.goes_on().await;
            }
            kill => {
                trial.fault();
                cluster.node(at).kill().await.unwrap();
                if kill == 2 {
                    trial.kill_worker(number + 1);
                }
                trial.goes_on().await;
                cluster.node(at).start_again().await.unwrap();
                is_whole(&cluster).await;
            }
        }
        trial.kill_worker(number);
        sleep(Duration::from_millis(random.below(500))).await;
    }
    trial.end().await
}

/// The node that serves a key, as soon as there is one.
async fn place_of(cluster: &RedisCluster, key: &str) -> usize {
    loop {
        if let Some(place) = cluster.place_of(key).await {
            return place;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Another primary than this one.
async fn next(cluster: &RedisCluster, at: usize) -> usize {
    let count = cluster.nodes().len();
    for place in (1..count).map(|step| (at + step) % count) {
        if is_primary(cluster, place).await {
            return place;
        }
    }
    panic!("there is one primary");
}

async fn is_primary(cluster: &RedisCluster, place: usize) -> bool {
    let info = cluster.node(place).execute(&["INFO", "replication"]).await;
    info.is_ok_and(|info| info.contains("role:master"))
}

/// Waits until three primaries have a replica each, with all data.
async fn is_whole(cluster: &RedisCluster) {
    cluster.ready().await.unwrap();
    until("each primary has a replica", async || {
        let mut primaries = 0;
        for node in cluster.nodes() {
            let info = node.execute(&["INFO", "replication"]).await.unwrap();
            let is_followed = info.contains("state=online");
            primaries += usize::from(info.contains("role:master") && is_followed);
        }
        primaries == 3
    })
    .await;
}

async fn judged(server: RedisKind, kind: Kind) {
    let verdict = tried(server, kind).await;
    println!("measured: {server} Cluster, {kind:?}: {verdict}");
    verdict.assert_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_outlives_its_primary_and_moves() {
    judged(RedisKind::Redis7, Kind::List).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_outlive_their_primaries_and_move() {
    judged(RedisKind::Redis7, Kind::Streams).await;
}
