//! A primary with a replica, sentinels that decide which of them is the primary, and a forwarder
//! that asks them.

use std::mem::swap;
use std::net::{Ipv4Addr, SocketAddr};

use keylane_testkit::scenario::until_async as until;
use testkit_processes::Verdict;
use testkit_servers::proxy::Proxy;
use testkit_servers::{Redis, RedisKind, Sentinel};

use crate::worker::{Kind, failovers, show_log, trial};

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Primaries are killed and stand still in turn.
async fn tried(server: RedisKind, kind: Kind) -> Verdict {
    show_log();
    let mut primary = Redis::start(server).await.unwrap();
    let replica = Redis::builder(server).replica_of(&primary);
    let mut replica = replica.start().await.unwrap();
    let sentinels = Sentinel::watch(&primary, 3).await.unwrap();
    let proxy = Proxy::to(local(primary.port())).await.unwrap();
    let mut trial = trial(kind, &format!("redis://127.0.0.1:{}/", proxy.port()));
    trial.goes_on().await;
    for number in 0..failovers() as usize {
        follows(&replica).await;
        watches(&sentinels, &primary).await;
        trial.fault();
        let is_killed = number.is_multiple_of(2);
        if is_killed {
            primary.kill().await.unwrap();
        } else {
            primary.pause().await.unwrap();
            trial.kill_worker(number + 1);
        }
        swap(&mut primary, &mut replica);
        watches(&sentinels, &primary).await;
        proxy.point_to(local(primary.port()));
        trial.goes_on().await;
        // The former primary comes back, and learns from the sentinels that it is none.
        if is_killed {
            replica.start_again().await.unwrap();
        } else {
            replica.resume().await.unwrap();
        }
        trial.kill_worker(number);
    }
    trial.end().await
}

/// Waits until a server follows the other one.
async fn follows(replica: &Redis) {
    until("the replica follows", async || {
        let info = replica.execute(&["INFO", "replication"]).await.unwrap();
        info.contains("role:slave") && info.contains("master_link_status:up")
    })
    .await;
}

/// Waits until all sentinels say that this is the primary, and it knows so.
async fn watches(sentinels: &[Sentinel], primary: &Redis) {
    until("the sentinels name the primary", async || {
        let mut named = Vec::new();
        for sentinel in sentinels {
            named.push(sentinel.primary().await.ok());
        }
        let is_named = named.iter().all(|one| *one == Some(primary.port()));
        is_named && {
            let info = primary.execute(&["INFO", "replication"]).await;
            info.is_ok_and(|info| info.contains("role:master"))
        }
    })
    .await;
}

async fn judged(server: RedisKind, kind: Kind) {
    let verdict = tried(server, kind).await;
    println!("{server} with Sentinel, {kind:?}: {verdict}");
    verdict.assert_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_follows_the_sentinels() {
    judged(RedisKind::Redis7, Kind::List).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_follow_the_sentinels() {
    judged(RedisKind::Redis7, Kind::Streams).await;
}
