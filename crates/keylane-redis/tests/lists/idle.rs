//! Connections that are lost while nothing is in hand.

use std::future::IntoFuture;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::IntakeState;
use keylane::source::RawMessage;
use keylane_redis::{ListQueue, Redis};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::Instant;
use tracing::Level;

use crate::logs::Logs;
use crate::support::{connect, own, until};

/// Loses the connections of an idle worker, and lets it handle an element afterwards.
async fn an_idle_worker_goes_on(server: &testkit_servers::Redis, lose: impl AsyncFn(&Proxy)) {
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    // Not reached while the machine stands still: the source forgives one lost connection.
    let redis = redis.response_timeout(Duration::from_secs(5));
    // It says nothing to the server for five seconds.
    let queue = ListQueue::builder(&redis, "idle").lease(Duration::from_secs(15));
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

/// The lease of the worker, as it is renewed and when it is not.
#[tokio::test]
async fn the_hold_of_elements_is_shown() {
    let server = own(RedisKind::Redis7).await;
    let redis = Redis::at(&server.url()).unwrap();
    let lease = Duration::from_secs(3);
    let queue = ListQueue::builder(&redis, "hold").lease(lease);
    let queue = queue.build().unwrap();
    queue.push(&RawMessage::new("long").key("a")).await.unwrap();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async {
            std::future::pending::<()>().await;
            Ok(())
        }))
        .unwrap();
    let intake = consumer.consume(queue.source()).unwrap();
    until("it is held", async || intake.stats().held == 1).await;
    let first = intake.stats().hold.expect("it is leased");
    assert_eq!(first.lasts, lease * 9 / 10);
    until("the lease is renewed", async || {
        let hold = intake.stats().hold.expect("it is leased");
        hold.until >= first.until + first.lasts
    })
    .await;
    drop(server);
    until("the lease has run out", async || {
        let hold = intake.stats().hold.expect("it was leased");
        hold.until <= Instant::now()
    })
    .await;
    let watch = intake.watch();
    intake.stop().within(Duration::ZERO).await;
    assert_eq!(watch.stats().hold, None);
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

/// The server has handed out an element, the answer is lost, and the source is stopped while it
/// connects again.
#[tokio::test]
async fn a_source_that_is_stopped_while_it_connects_again_gives_back() {
    let server = own(RedisKind::Redis7).await;
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let queue = |url: &str| {
        let redis = Redis::at(url).unwrap();
        // No other worker would get the element in the time of the test.
        let lease = Duration::from_secs(600);
        let queue = ListQueue::builder(&redis, "stopped").lease(lease).build();
        queue.unwrap()
    };
    let behind = queue(&format!("redis://127.0.0.1:{}", proxy.port()));
    let direct = queue(&server.url());
    let logs = Logs::record();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = consumer.consume(behind.source()).unwrap();
    until("it waits for an element", async || {
        let clients = server.execute(&["CLIENT", "LIST"]).await.unwrap();
        clients.contains("cmd=blmove")
    })
    .await;
    // The end of the wait passes, of 5 and 20 bytes with their lengths, and the beginning of the
    // answer with the element.
    proxy.reset_after(Direction::ToClient, 40);
    proxy.delay(Direction::ToServer, Duration::from_secs(1));
    let mut raw = connect(&server.url()).await;
    let mut push = redis::cmd("LPUSH");
    push.arg("stopped").arg("twenty bytes of text");
    push.exec_async(&mut raw).await.unwrap();
    until("it connects again", async || {
        let lines = logs.at(Level::INFO);
        lines.iter().any(|line| line.contains("connects again"))
    })
    .await;
    proxy.cut();
    proxy.delay(Direction::ToServer, Duration::ZERO);
    let held = direct.status().await.unwrap();
    assert_eq!((held.waiting, held.workers.len()), (0, 1));
    let mut stop = pin!(intake.stop().into_future());
    let stats = tokio::select! {
        stats = &mut stop => stats,
        () = until("it connects to leave", async || proxy.traffic().accepted > 3) => {
            proxy.heal();
            stop.await
        }
    };
    let left = direct.status().await.unwrap();
    assert_eq!((left.waiting, left.workers.len()), (1, 0), "{stats}");
    assert_eq!(logs.at(Level::ERROR), [""; 0]);
}
