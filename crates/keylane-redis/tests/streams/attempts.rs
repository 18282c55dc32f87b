//! The attempts at an entry.

use std::time::Duration;

use keylane::source::{Outcome, Settlement, Source as _};
use testkit_servers::RedisKind;

use crate::starts::{ATTEMPTS, Starts};
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
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("again"));
        let starts = Starts::at(&server).await;
        let letters = format!("{name}.dead");
        let source = builder(&starts.url(), "g").stream(name.clone());
        let source = source.lease(30 * LEASE).dead_letters(letters.clone());
        let source = source.build().unwrap();
        let watch = source.watch();
        let (_dispatcher, intake) = starts.consume(source);
        until("it owns the stream", async || watch.counts().owned == 1).await;
        // The server knows the script then.
        client.add(&name, "a", "ready").await;
        until("it is acked", async || client.left(&name, "g").await == 0).await;
        client.add(&name, "a", "0").await;
        let counted = async |attempt| {
            let pending = client.pending(&name, "g").await;
            let mut counts = pending.iter().map(|(_, count)| *count);
            counts.any(|count| count == u64::from(attempt) + 1)
        };
        starts.are_noted_again(counted).await;
        until("there is a letter", async || {
            client.run::<u64>(&["XLEN", &letters]).await == 1
        })
        .await;
        let found: Vec<(String, Vec<String>)> = client.run(&["XRANGE", &letters, "-", "+"]).await;
        let fields = &found[0].1;
        let at = fields.iter().position(|field| field == "keylane.attempts");
        assert_eq!(fields[at.unwrap() + 1], ATTEMPTS.to_string(), "{kind}");
        assert_eq!(starts.runs(), ATTEMPTS, "{kind}");
        intake.stop().await;
    }
}
