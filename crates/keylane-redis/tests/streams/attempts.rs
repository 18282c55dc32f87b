//! The attempts at an entry.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::{Outcome, RawMessage, Settlement, Source as _};
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::support::{Client, Driven, LEASE, PATIENCE, builder, new_name, shared, until};

/// Starts an attempt once it is noted.
async fn start(source: &mut Driven, position: keylane_redis::StreamPosition, attempt: u32) {
    let guard = source.0.start_guard().unwrap();
    let until = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = guard.starts(0, &position, attempt) {
        assert!(tokio::time::Instant::now() < until, "{error}");
        source.once(0, Duration::from_millis(20)).await;
    }
}

/// A first attempt needs no note. After a crash each one is noted, and the count outlives all
/// processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_survive() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("attempts"));
        client.add_all(&name, 0..2).await;
        let source = || {
            builder(&server.url(), "g")
                .stream(name.clone())
                .build()
                .unwrap()
        };
        let counts = async || {
            let pending = client.pending(&name, "g").await;
            pending
                .into_iter()
                .map(|(_, count)| count)
                .collect::<Vec<_>>()
        };
        let mut first = Driven::open(source()).await;
        let handed = first.receive(2).await;
        let guard = first.0.start_guard().unwrap();
        assert!(guard.starts(0, &handed[0].position, 1).is_ok());
        assert_eq!(counts().await, [1, 1], "a first attempt needs no note");
        start(&mut first, handed[0].position, 2).await;
        assert_eq!(counts().await, [3, 1]);
        drop(first);

        let mut second = Driven::open(source()).await;
        let handed = second.receive(2).await;
        let attempts: Vec<_> = handed.iter().map(|one| one.attempts).collect();
        assert_eq!(attempts, [2, 0], "{kind}");
        assert_eq!(handed[0].message.attempt, 3);
        // It may have killed the process.
        let guard = second.0.start_guard().unwrap();
        assert!(guard.starts(1, &handed[1].position, 1).is_err());
        start(&mut second, handed[1].position, 1).await;
        assert_eq!(counts().await, [3, 2]);
        drop(second);

        let mut third = Driven::open(source()).await;
        let handed = third.receive(2).await;
        let attempts: Vec<_> = handed.iter().map(|one| one.attempts).collect();
        assert_eq!(attempts, [2, 1], "{kind}");
    }
}

/// An attempt that a stop has dropped does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_was_dropped_does_not_count() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("dropped"));
    client.add_all(&name, 0..2).await;
    let source = || {
        let builder = builder(&server.url(), "g").stream(name.clone());
        builder.exact_starts().build().unwrap()
    };
    let mut first = Driven::open(source()).await;
    let handed = first.receive(2).await;
    for one in &handed {
        start(&mut first, one.position, 1).await;
    }
    start(&mut first, handed[0].position, 2).await;
    let returned = [1, 0].map(Outcome::returned);
    let settled = handed.iter().zip(returned);
    let settled: Vec<_> = settled
        .map(|(one, outcome)| Settlement::new(one.position, outcome))
        .collect();
    first.0.settle(&settled).await.unwrap();
    first.0.close().await.unwrap();
    let mut second = Driven::open(source()).await;
    let handed = second.receive(2).await;
    let attempts: Vec<_> = handed.iter().map(|one| one.attempts).collect();
    assert_eq!(attempts, [1, 0]);
}

/// Each start is counted by the server, and the connection breaks before the answer is there. The
/// start is noted again and counts once: the message has all its attempts before it is a letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_noted_again_counts_once() {
    const ATTEMPTS: u32 = 4;
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("again"));
        let proxy = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into());
        let proxy = Arc::new(proxy.await.unwrap());
        let (runs, cuts) = (Arc::new(AtomicU32::new(0)), Arc::clone(&proxy));
        let counts = Arc::clone(&runs);
        let consumer = by_key()
            .retry(Retry::fixed(Duration::from_millis(20)).max_attempts(ATTEMPTS))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(move |raw: RawMessage| {
                if raw.payload == "ready" {
                    return futures::future::ready(Ok(()));
                }
                if counts.fetch_add(1, Ordering::SeqCst) + 1 < ATTEMPTS {
                    cuts.cut_to_client();
                }
                futures::future::ready(Err("no".into()))
            }))
            .unwrap();
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let letters = format!("{name}.dead");
        let source = builder(&url, "g").stream(name.clone()).lease(30 * LEASE);
        let source = source.dead_letters(letters.clone()).build().unwrap();
        let settings = IntakeSettings::new().longest_pause(Duration::from_millis(50));
        let watch = source.watch();
        let intake = consumer.consume_with(source, settings).unwrap();
        until("it owns the stream", async || watch.counts().owned == 1).await;
        // The server knows the script then.
        client.add(&name, "a", "ready").await;
        until("it is acked", async || client.left(&name, "g").await == 0).await;
        client.add(&name, "a", "0").await;
        for attempt in 2..=ATTEMPTS {
            until("the server has counted it", async || {
                let pending = client.pending(&name, "g").await;
                pending
                    .iter()
                    .any(|(_, count)| *count == u64::from(attempt) + 1)
            })
            .await;
            assert_eq!(runs.load(Ordering::SeqCst), attempt - 1, "{kind}");
            proxy.reset();
            proxy.heal();
            until("it is tried again", async || {
                runs.load(Ordering::SeqCst) == attempt
            })
            .await;
        }
        until("there is a letter", async || {
            client.run::<u64>(&["XLEN", &letters]).await == 1
        })
        .await;
        let found: Vec<(String, Vec<String>)> = client.run(&["XRANGE", &letters, "-", "+"]).await;
        let fields = &found[0].1;
        let at = fields.iter().position(|field| field == "keylane.attempts");
        assert_eq!(fields[at.unwrap() + 1], ATTEMPTS.to_string(), "{kind}");
        assert_eq!(runs.load(Ordering::SeqCst), ATTEMPTS, "{kind}");
        intake.stop().await;
    }
}
