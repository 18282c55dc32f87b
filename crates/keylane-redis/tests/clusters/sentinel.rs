//! A primary with a replica, and Sentinels that decide which of them is the primary.

use std::time::Duration;

use testkit_processes::Verdict;
use testkit_servers::{Redis, RedisKind, RedisSentinels};
use tokio::time::sleep;

use crate::worker::{Kind, failovers, show_log, trial};

struct Site {
    /// The first one is the primary at the beginning.
    servers: [Redis; 2],
    sentinels: RedisSentinels,
}

impl Site {
    /// The place of the server that is the primary, when the other one follows it with all data.
    async fn primary(&self) -> usize {
        loop {
            let named = self.sentinels.primary().await;
            let is_named = |server: &Redis| Some(server.port()) == named;
            if let Some(primary) = self.servers.iter().position(is_named) {
                let info = self.servers[primary].execute(&["INFO", "replication"]);
                let info = info.await.unwrap_or_default();
                if info.contains("role:master") && info.contains("state=online") {
                    return primary;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Primaries are killed and stand still in turn.
async fn tried(server: RedisKind, kind: Kind) -> Verdict {
    show_log();
    let primary = Redis::start(server).await.unwrap();
    let replica = Redis::builder(server).replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let sentinels = RedisSentinels::start(&primary, 3).await.unwrap();
    let name = format!("redis://{}/", RedisSentinels::NAME);
    let mut trial = trial(kind, &format!("{name} {}", sentinels.urls().join(",")));
    let site = Site {
        servers: [primary, replica],
        sentinels,
    };
    trial.goes_on().await;
    for number in 0..failovers() as usize {
        let primary = &site.servers[site.primary().await];
        trial.fault();
        if number.is_multiple_of(2) {
            primary.kill().await.unwrap();
            trial.goes_on().await;
            primary.start_again().await.unwrap();
        } else {
            primary.pause().await.unwrap();
            trial.kill_worker(number + 1);
            trial.goes_on().await;
            // It comes back, and learns from the sentinels that it is no primary.
            primary.resume().await.unwrap();
        }
        trial.kill_worker(number);
    }
    trial.end().await
}

async fn judged(server: RedisKind, kind: Kind) {
    let verdict = tried(server, kind).await;
    println!("measured: {server} with Sentinel, {kind:?}: {verdict}");
    verdict.assert_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak --clusters`"]
async fn a_list_follows_the_sentinels() {
    judged(RedisKind::Redis7, Kind::List).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak --clusters`"]
async fn streams_follow_the_sentinels() {
    judged(RedisKind::Redis7, Kind::Streams).await;
}
