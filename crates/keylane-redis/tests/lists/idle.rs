//! Connections that are lost while nothing is in hand.

use std::net::Ipv4Addr;
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::IntakeState;
use keylane::source::RawMessage;
use keylane_redis::{ListQueue, Redis};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;
use tracing::Level;

use crate::logs::Logs;
use crate::support::{connect, own, until};

/// Loses the connections of an idle worker, and lets it handle an element afterwards.
async fn an_idle_worker_goes_on(server: &testkit_servers::Redis, lose: impl AsyncFn(&Proxy)) {
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let redis = redis.response_timeout(Duration::from_secs(1));
    // It says nothing to the server for two seconds.
    let queue = ListQueue::builder(&redis, "idle").lease(Duration::from_secs(6));
    let queue = queue.build().unwrap();
    let logs = Logs::record();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = consumer.consume(queue.source()).unwrap();
    until("it is a worker", async || {
        intake.stats().state == IntakeState::Running
            && !queue.status().await.unwrap().workers.is_empty()
    })
    .await;
    lose(&proxy).await;
    let redis = Redis::at(&server.url()).unwrap();
    let direct = ListQueue::builder(&redis, "idle").build().unwrap();
    direct
        .push(&RawMessage::new("late").key("a"))
        .await
        .unwrap();
    until("it is handled", async || intake.stats().acked == 1).await;
    let stats = intake.stats();
    assert_eq!((stats.last_error, stats.restarts), (None, 0));
    assert_eq!(stats.failed_parts, []);
    assert_eq!(logs.at(Level::ERROR), [""; 0]);
    intake.stop().await;
}

#[tokio::test]
async fn a_server_that_closes_idle_connections() {
    let server = own(RedisKind::Redis8).await;
    let raw = connect(&server.url()).await;
    let mut closes = redis::cmd("CONFIG");
    closes.arg("SET").arg("timeout").arg(1);
    closes.exec_async(&mut raw.clone()).await.unwrap();
    an_idle_worker_goes_on(&server, async |proxy| {
        let opened = proxy.traffic().accepted;
        until("it has connected again", async || {
            proxy.traffic().accepted > opened
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_network_that_closes_connections() {
    let server = own(RedisKind::Redis7).await;
    an_idle_worker_goes_on(&server, async |proxy| proxy.reset()).await;
}

#[tokio::test]
async fn a_network_that_forgets_connections() {
    let server = own(RedisKind::Valkey9).await;
    an_idle_worker_goes_on(&server, async |proxy| proxy.forget()).await;
}
