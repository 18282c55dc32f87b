//! A primary with a replica, sentinels that decide which of them is the primary, and a forwarder
//! that asks them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use testkit_processes::Verdict;
use testkit_servers::proxy::Proxy;
use testkit_servers::{Redis, RedisKind, Sentinel};
use tokio::time::sleep;

use crate::worker::{Kind, failovers, show_log, trial};

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// What the clients connect to, and what it asks.
struct Site {
    /// The first one is the primary at the beginning.
    servers: [Redis; 2],
    sentinels: Vec<Sentinel>,
    proxy: Proxy,
}

impl Site {
    /// Lets new connections go where the sentinels say, until this is dropped.
    async fn forwards(&self) {
        loop {
            if let Some(port) = self.named().await {
                self.proxy.point_to(local(port));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The port of the primary, if all sentinels name the same one.
    async fn named(&self) -> Option<u16> {
        let mut named = None;
        for sentinel in &self.sentinels {
            let port = sentinel.primary().await.ok()?;
            if named.replace(port).is_some_and(|other| other != port) {
                return None;
            }
        }
        named
    }

    /// The place of the server that is the primary, when the other one follows it with all data.
    async fn primary(&self) -> usize {
        loop {
            let named = self.named().await;
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
    let site = Arc::new(Site {
        sentinels: Sentinel::watch(&primary, 3).await.unwrap(),
        proxy: Proxy::to(local(primary.port())).await.unwrap(),
        servers: [primary, replica],
    });
    let forwarder = Arc::clone(&site);
    let forwarder = tokio::spawn(async move { forwarder.forwards().await });
    let mut trial = trial(kind, &format!("redis://127.0.0.1:{}/", site.proxy.port()));
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
    let verdict = trial.end().await;
    forwarder.abort();
    verdict
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
