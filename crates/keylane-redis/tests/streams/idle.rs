//! Connections that are lost while nothing is in hand.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::IntakeState;
use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source as _};
use keylane_redis::{Redis, StreamSource};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::{Instant, timeout};
use tracing::Level;

use crate::logs::Logs;
use crate::support::{Client, own, until};

/// A server with a limit for idle clients, a network that closes connections, and one that forgets
/// them: the source goes on, and it is no failure.
#[tokio::test]
async fn an_idle_source_connects_again() {
    let server = own(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    client.run::<()>(&["CONFIG", "SET", "timeout", "1"]).await;
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    for (number, lose) in [Proxy::reset, Proxy::forget].into_iter().enumerate() {
        let name = format!("idle-{number}");
        let proxy = Proxy::to(target).await.unwrap();
        let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
        // Not reached while the machine stands still: the source forgives one lost connection.
        let redis = redis.response_timeout(Duration::from_secs(5));
        let logs = Logs::record();
        let handled = Arc::<Mutex<Vec<String>>>::default();
        let theirs = Arc::clone(&handled);
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(move |raw: RawMessage| {
                let payload = String::from_utf8(raw.payload.to_vec()).unwrap();
                theirs.lock().unwrap().push(payload);
                async { Ok(()) }
            }))
            .unwrap();
        let source = StreamSource::builder(&redis, "g").stream(name.clone());
        let source = source.lease(Duration::from_secs(20)).build().unwrap();
        let watch = source.watch();
        let intake = consumer.consume(source).unwrap();
        until("it owns the stream", async || watch.counts().owned == 1).await;
        let opened = proxy.traffic().accepted;
        // Longer than the server lets a client be idle.
        tokio::time::sleep(Duration::from_secs(3)).await;
        lose(&proxy);
        until("it is connected again", async || {
            proxy.traffic().accepted >= opened + 2
        })
        .await;
        let client = Client::to(&server).await;
        client.add(&name, "a", "late").await;
        until("it is handled", async || {
            !handled.lock().unwrap().is_empty()
        })
        .await;
        let stats = intake.stats();
        assert_eq!(stats.state, IntakeState::Running);
        assert_eq!((stats.last_error, stats.restarts), (None, 0));
        assert_eq!(stats.failed_parts, []);
        let hold = stats.hold.expect("its lease is held");
        assert!(hold.until > Instant::now(), "{hold:?}");
        assert_eq!(hold.lasts, Duration::from_secs(18), "of twenty seconds");
        assert_eq!(logs.at(Level::ERROR), [""; 0]);
        intake.stop().await;
    }
}

/// The connection is lost with an ack on the way: the entry comes again, so it must not count as
/// acked.
#[tokio::test]
async fn an_ack_that_was_not_sent_is_not_confirmed() {
    let server = own(RedisKind::Redis8).await;
    let client = Client::to(&server).await;
    client.add("acks", "a", "one").await;
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let source = StreamSource::builder(&redis, "g").stream("acks");
    let mut source = source.build().unwrap();
    source.open().await.unwrap();
    let one = loop {
        let mut into = Deliveries::new(1, Instant::now() + Duration::from_secs(1));
        source.receive(&mut into).await.unwrap();
        if let Some(one) = into.take().pop() {
            break one;
        }
    };
    proxy.reset();
    let settled = [Settlement::new(one.position, Outcome::Done)];
    source.settle(&settled).await.unwrap();
    // Until the tasks know it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut into = Deliveries::new(0, Instant::now() + Duration::from_secs(1));
    let received = source.receive(&mut into).await;
    let is_confirmed = received.is_ok() && source.confirm().await.is_ok();
    assert!(!is_confirmed);
}

/// The driver drops the call when it has something else to do.
#[tokio::test]
async fn a_source_that_connects_again_goes_on_after_a_dropped_call() {
    let server = own(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    client.add("dropped", "a", "one").await;
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let source = StreamSource::builder(&redis, "g").stream("dropped");
    let mut source = source.build().unwrap();
    source.open().await.unwrap();
    proxy.delay(Direction::ToServer, Duration::from_millis(200));
    proxy.reset();
    let mut received = Vec::new();
    let until = Instant::now() + Duration::from_secs(120);
    while received.is_empty() && Instant::now() < until {
        let mut into = Deliveries::new(1, Instant::now() + Duration::from_secs(1));
        let limit = Duration::from_millis(100);
        if let Ok(Err(error)) = timeout(limit, source.receive(&mut into)).await {
            panic!("{error}");
        }
        proxy.delay(Direction::ToServer, Duration::ZERO);
        received = into.take();
    }
    assert_eq!(received.len(), 1);
}
