//! Servers that cannot do it now, or have lost their data.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::error::BoxError;
use keylane::source::{Outcome, RawMessage, Received, Settlement, Source as _};
use keylane::{Dispatcher, OnExhausted};
use keylane_leases::{Leases, MemoryStore};
use keylane_redis::{Redis, StreamSource, StreamStart};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use redis::Value;
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;
use tokio::time::sleep;

use crate::parts::{allow, url};
use crate::support::{
    Client, Driven, LEASE, builder, new_name, own, payloads, shared, texts, until,
};

/// A group that is removed is created again at its old place: open entries come again, and no
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_removed_is_made_again() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("destroyed"));
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        client.add_all(&name, 0..6).await;
        let handed = source.receive(6).await;
        source.ack(&handed[..3]).await;
        source.ack(&handed[4..]).await;
        let _: u64 = client.run(&["XGROUP", "DESTROY", &name, "g"]).await;
        client.add_all(&name, 6..8).await;
        let again = source.receive(5).await;
        assert_eq!(payloads(&again), texts([3, 4, 5, 6, 7]), "{kind}");
        source.ack(&again).await;
        assert_eq!(client.left(&name, "g").await, 0);
    }
}

/// Opens a source, and removes its group before any entry has come.
async fn removed_early(source: &mut Driven, client: &Client, name: &str) {
    source.0.open().await.unwrap();
    let watch = source.0.watch();
    // Without a pause, so that it does not take in what is read.
    while watch.counts().owned == 0 {
        source.once(0, Duration::ZERO).await;
    }
    sleep(Duration::from_millis(200)).await;
    let _: u64 = client.run(&["XGROUP", "DESTROY", name, "g"]).await;
    source.0.open().await.unwrap();
}

/// It is removed while pending entries are on their way to an owner that was opened again, or that
/// may not look at them.
#[tokio::test]
async fn a_group_that_is_removed_before_any_entry_has_come_is_made_again_where_it_was() {
    for (kind, may_look) in RedisKind::ALL.into_iter().zip([true, false, true]) {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("early"));
        let user = new_name("user");
        allow(&client, &user, &[&name]).await;
        let source = builder(&url(&server, &user), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        client.add_all(&name, 0..6).await;
        let handed = source.receive(6).await;
        source.ack(&handed[..3]).await;
        if !may_look {
            let words = ["ACL", "SETUSER", &user, "-xpending"];
            client.run::<()>(&words).await;
        }
        removed_early(&mut source, &client, &name).await;
        allow(&client, &user, &[&name]).await;
        let again = source.receive(3).await;
        assert_eq!(payloads(&again), texts(3..6), "{kind}");
        source.0.close().await.unwrap();
    }
}

/// What had settled in the stream of before says nothing about a new one.
#[tokio::test]
async fn a_stream_that_is_made_again_before_any_entry_has_come_is_read_from_its_start() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("early"));
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        client.add_all(&name, 0..3).await;
        let handed = source.receive(3).await;
        source.ack(&handed).await;
        let _: u64 = client.run(&["DEL", &name]).await;
        for number in ["3", "4", "5"] {
            // Ids below all earlier ones.
            let id = format!("1-{number}");
            let words = ["XADD", &name, &id, "payload", number];
            let _: String = client.run(&words).await;
        }
        removed_early(&mut source, &client, &name).await;
        let handed = source.receive(3).await;
        assert_eq!(payloads(&handed), texts(3..6), "{kind}");
        source.0.close().await.unwrap();
    }
}

/// It is removed while an entry that was returned is to come again. What was read behind that entry
/// has been dropped, and comes again as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_removed_before_a_returned_entry_has_come_loses_nothing() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("dropped"));
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        client.add_all(&name, 0..6).await;
        let handed = source.receive(4).await;
        let returned = Settlement::new(handed[1].position, Outcome::returned(1));
        source.0.settle(&[returned]).await.unwrap();
        source.ack(&handed[..1]).await;
        let (_, received) = source.once(10, Duration::from_secs(5)).await;
        let generation = handed[0].generation;
        assert_eq!(received, Received::Revoked(vec![generation]), "{kind}");
        source.ack(&handed[2..]).await;
        let _: u64 = client.run(&["XGROUP", "DESTROY", &name, "g"]).await;
        source.0.release(&[generation]).await.unwrap();
        let again = source.receive(5).await;
        assert_eq!(payloads(&again), texts(1..6), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_forgotten_everything_is_consumed_on() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("flushed"));
        let source = builder(&server.url(), "g").stream(name.clone());
        // The server has no leases then: none is renewed in the time of the test.
        let source = source.start_at(StreamStart::Latest).lease(60 * LEASE);
        let mut source = Driven::open(source.build().unwrap()).await;
        until("the group is there", async || {
            client.run::<u64>(&["EXISTS", &name]).await == 1
        })
        .await;
        client.add_all(&name, 0..3).await;
        let handed = source.receive(3).await;
        source.ack(&handed).await;
        let _: Value = client.run(&["FLUSHALL"]).await;
        client.add_all(&name, 3..6).await;
        let handed = source.receive(3).await;
        assert_eq!(payloads(&handed), texts(3..6), "{kind}");
        source.ack(&handed).await;
        let _: Value = client.run(&["FLUSHALL"]).await;
        // Ids below all earlier ones.
        let mut steps = redis::pipe();
        for number in 6..9 {
            let id = format!("1-{number}");
            steps
                .cmd("XADD")
                .arg(&name)
                .arg(id)
                .arg("payload")
                .arg(number);
        }
        client.steps(&steps).await;
        let handed = source.receive(3).await;
        assert_eq!(payloads(&handed), texts(6..9), "{kind}");
        source.ack(&handed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_comes_later() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("latest"));
    client.add_all(&name, 0..3).await;
    let source = builder(&server.url(), "g").stream(name.clone());
    let source = source.start_at(StreamStart::Latest);
    let mut source = Driven::open(source.build().unwrap()).await;
    until("the group is there", async || {
        client.left(&name, "g").await == 0
    })
    .await;
    client.add_all(&name, 3..4).await;
    assert_eq!(payloads(&source.receive(1).await), texts([3]));
}

struct Consumed {
    handled: Arc<Mutex<Vec<u64>>>,
    /// Entries with numbers from 1,000 on wait here before they end.
    gate: Gate,
    intake: keylane::consume::Intake,
    _consumer: Dispatcher<bytes::Bytes, RawMessage, (), BoxError>,
}

fn consume(server: &testkit_servers::Redis, name: &str) -> Consumed {
    let handled = Arc::<Mutex<Vec<u64>>>::default();
    let (theirs, gate) = (Arc::clone(&handled), Gate::new());
    let waits = gate.clone();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |raw: RawMessage| {
            let number = std::str::from_utf8(&raw.payload).unwrap().parse().unwrap();
            theirs.lock().unwrap().push(number);
            let waits = waits.clone();
            async move {
                if number >= 1_000 {
                    waits.pass().await;
                }
                Ok(())
            }
        }))
        .unwrap();
    let source = builder(&server.url(), "g").stream(name.to_owned());
    let source = source.build().unwrap();
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
    let intake = consumer.consume_with(source, settings).unwrap();
    Consumed {
        handled,
        gate,
        intake,
        _consumer: consumer,
    }
}

impl Consumed {
    fn handled(&self) -> Vec<u64> {
        self.handled.lock().unwrap().clone()
    }
}

/// A script of another client keeps the server busy. It refuses all commands meanwhile, including
/// acks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_loses_nothing() {
    for kind in RedisKind::ALL {
        let server = testkit_servers::Redis::builder(kind).argument("busy-reply-threshold", "50");
        let server = Arc::new(server.start().await.unwrap());
        let (client, name) = (Client::to(&server).await, new_name("busy"));
        let consumed = consume(&server, &name);
        client.add_all(&name, 0..50).await;
        until("some are handled", async || consumed.handled().len() == 50).await;
        client.add_all(&name, 1_000..1_010).await;
        until("some are under way", async || consumed.gate.waiting() > 0).await;
        let script = "local t = redis.call('TIME') repeat local n = redis.call('TIME') \
                      until n[1] - t[1] >= 6";
        let spins = Client::to(&server).await;
        let spinning = tokio::spawn(async move {
            let _: Value = spins.run(&["EVAL", script, "0"]).await;
        });
        until("the server is busy", async || {
            let ping = client.try_ask::<Value>(&redis::cmd("PING")).await;
            ping.is_err_and(|error| error.to_string().contains("BUSY"))
        })
        .await;
        consumed.gate.open();
        spinning.await.unwrap();
        client.add_all(&name, 50..90).await;
        until("all are handled", async || consumed.handled().len() >= 100).await;
        assert_eq!(consumed.intake.stats().restarts, 0, "there was no need to");
        let report = consumed.intake.stop().await;
        let mut handled = consumed.handled();
        handled.sort_unstable();
        let all: Vec<u64> = (0..90).chain(1_000..1_010).collect();
        assert_eq!(handled, all, "{kind}: {report}");
        assert_eq!(report.acked, 100);
        assert_eq!(client.left(&name, "g").await, 0);
    }
}

/// A full server takes acks, which is how it gets empty, and another process takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_is_emptied() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("full"));
        client.add_all(&name, 0..100).await;
        let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
        let source = || {
            let builder = builder(&server.url(), "g").stream(name.clone());
            builder.leases(leases.clone()).build().unwrap()
        };
        let mut first = Driven::open(source()).await;
        let handed = first.receive(100).await;
        let _: Value = client.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let mut refused = redis::cmd("XADD");
        refused.arg(&name).arg("*").arg("payload").arg("x");
        assert!(
            client.try_ask::<Value>(&refused).await.is_err(),
            "it is full"
        );
        first.ack(&handed[..90]).await;
        assert_eq!(client.left(&name, "g").await, 10);
        drop(first);
        let mut second = Driven::open(source()).await;
        let handed = second.receive(10).await;
        second.ack(&handed).await;
        assert_eq!(client.left(&name, "g").await, 0, "{kind}");
    }
}

/// The primary becomes a replica, and a primary again: its connections are left, and no entry is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_left_until_it_is_a_primary() {
    let server = own(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("replica"));
    client.add_all(&name, 0..20).await;
    let consumed = consume(&server, &name);
    until("some are handled", async || consumed.handled().len() == 20).await;
    let _: Value = client.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    until("it is noticed", async || {
        consumed.intake.stats().restarts > 0
    })
    .await;
    let _: Value = client.run(&["REPLICAOF", "NO", "ONE"]).await;
    client.add_all(&name, 20..30).await;
    until("all are handled", async || {
        (0..30).all(|number| consumed.handled().contains(&number))
    })
    .await;
    until("all are acked", async || client.left(&name, "g").await == 0).await;
    consumed.intake.stop().await;
}

/// A source reports that it is well only if the server has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_not_well() {
    let server = shared(RedisKind::Redis7).await;
    let proxy = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into())
        .await
        .unwrap();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let redis = Redis::at(&url)
        .unwrap()
        .response_timeout(Duration::from_secs(60));
    let source = StreamSource::builder(&redis, "g")
        .stream(new_name("silent"))
        .build();
    let mut source = Driven::open(source.unwrap()).await;
    let watch = source.0.watch();
    while watch.counts().owned == 0 {
        source.once(1, Duration::from_millis(20)).await;
    }
    let (_, received) = source.once(1, Duration::from_millis(200)).await;
    assert_eq!(received, Received::Idle);
    proxy.cut();
    let silent = source.once(1, Duration::from_millis(200));
    let silent = tokio::time::timeout(Duration::from_secs(1), silent).await;
    assert!(silent.is_err(), "{silent:?} without an answer");
}

/// Entries of 1 MiB are read a few at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_entries_come() {
    let server = shared(RedisKind::Redis8).await;
    let (client, name) = (Client::to(&server).await, new_name("large"));
    for number in 0..40 {
        let payload = format!("{}{number:04}", "0".repeat((1 << 20) - 4));
        client.add(&name, "a", &payload).await;
    }
    let source = || {
        builder(&server.url(), "g")
            .stream(name.clone())
            .build()
            .unwrap()
    };
    for _ in 0..2 {
        let mut source = Driven::open(source()).await;
        let handed = source.receive(40).await;
        let numbers = payloads(&handed);
        let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    }
    let mut source = Driven::open(source()).await;
    let handed = source.receive(40).await;
    source.ack(&handed).await;
    source.0.close().await.unwrap();
    let _: u64 = client.run(&["DEL", &name]).await;
}
