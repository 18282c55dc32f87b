//! A primary that Sentinels watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::consume::Intake;
use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted};
use keylane_leases::Leases;
use keylane_redis::{
    ConfigError, ErrorKind, ListQueue, Quota, Redis, RedisLeases, SharedRate, StreamSink,
    StreamSource,
};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::{RedisKind, RedisSentinels};

use crate::support::{LEASE, until};

struct Consumed {
    handled: Arc<AtomicUsize>,
    intake: Intake,
    _consumer: Dispatcher<bytes::Bytes, RawMessage, (), BoxError>,
}

impl Consumed {
    fn of<S: Source<Message = RawMessage>>(source: S) -> Self {
        let handled = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&handled);
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(move |_: RawMessage| {
                theirs.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            }))
            .unwrap();
        Self {
            handled,
            intake: consumer.consume(source).unwrap(),
            _consumer: consumer,
        }
    }

    async fn handles(&self, count: usize) {
        until("it is handled", async || {
            self.handled.load(Ordering::Relaxed) >= count
        })
        .await;
    }
}

/// Streams, lists, leases and rates go on with the replica that is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_go_on_with_the_promoted_replica() {
    let kind = RedisKind::Redis8;
    let primary = testkit_servers::Redis::builder(kind).password("secret");
    let primary = primary.start().await.unwrap();
    let replica = testkit_servers::Redis::builder(kind).password("secret");
    let replica = replica.replica_of(&primary).start().await.unwrap();
    let sentinels = RedisSentinels::start(&primary, 3).await.unwrap();
    let urls = sentinels.urls();
    let name = format!("redis://:secret@{}/", RedisSentinels::NAME);
    let redis = Redis::sentinel(urls.iter().map(String::as_str), &name).unwrap();
    let redis = redis.response_timeout(Duration::from_secs(1));

    let stream = StreamSource::builder(&redis, "g").stream("stream");
    let stream = Consumed::of(stream.lease(LEASE).build().unwrap());
    let sink = StreamSink::new(&redis, "stream").unwrap();
    let queue = ListQueue::builder(&redis, "list").lease(LEASE);
    let queue = queue.build().unwrap();
    let list = Consumed::of(queue.source());
    let leases = RedisLeases::open(&redis, "leases").unwrap();
    let leases = Leases::open(Arc::new(leases)).unwrap();
    let rate = SharedRate::builder(&redis, "rate").total(Quota::per_second(1_000));
    let rate = rate.build().unwrap();

    let mut token = None;
    for round in 0..2 {
        let message = RawMessage::new(round.to_string()).key("a");
        until("it is pushed to the stream", async || {
            sink.push(&message).await.is_ok()
        })
        .await;
        until("it is pushed to the list", async || {
            queue.push(&message).await.is_ok()
        })
        .await;
        stream.handles(round + 1).await;
        list.handles(round + 1).await;
        let mut lease = None;
        until("there is a lease", async || {
            lease = leases.acquire("key", LEASE).await.ok();
            lease.is_some()
        })
        .await;
        let granted = lease.map(|lease| lease.token());
        assert!(token < granted, "{token:?}, {granted:?}");
        token = granted;
        rate.acquire("key").await.unwrap();
        if round == 0 {
            until("nothing is held", async || {
                stream.intake.stats().held == 0 && list.intake.stats().held == 0
            })
            .await;
            // What the replica does not have yet would be lost.
            primary.replicated().await.unwrap();
            primary.kill().await.unwrap();
            until("the replica is promoted", async || {
                sentinels.primary().await == Some(replica.port())
            })
            .await;
        }
    }
    stream.intake.stop().await;
    list.intake.stop().await;
}

#[tokio::test]
async fn a_sentinel_is_no_server_and_a_server_no_sentinel() {
    let server = testkit_servers::Redis::start(RedisKind::Valkey9)
        .await
        .unwrap();
    let sentinels = RedisSentinels::start(&server, 1).await.unwrap();
    let sentinel = &sentinels.urls()[0];
    let sink = StreamSink::new(&Redis::at(sentinel).unwrap(), "stream").unwrap();
    let messages = ["a", "b", "c"].map(RawMessage::new);
    let error = sink.push_all(&messages).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Address, "{error}");
    let said = error.to_string();
    assert_eq!(said.matches("Redis::sentinel").count(), 1, "{said}");

    let named = |nodes: &[&str], name: &str| {
        let redis = Redis::sentinel(nodes.iter().copied(), name);
        redis.and_then(|redis| StreamSink::new(&redis, "stream"))
    };
    let name = format!("redis://{}", RedisSentinels::NAME);
    let no_sentinel = named(&[&server.url()], &name).unwrap();
    let error = no_sentinel.push(&messages[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Address, "{error}");
    let unknown = named(&[sentinel], "redis://unknown").unwrap();
    let error = unknown.push(&messages[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    // One of them is enough.
    let some = named(&["redis://127.0.0.1:1", sentinel], &name).unwrap();
    some.push(&messages[0]).await.unwrap();
    for (nodes, name) in [(&[][..], &*name), (&[&**sentinel][..], "orders-primary")] {
        let refused: ConfigError = named(nodes, name).unwrap_err();
        assert!(refused.to_string().contains("redis://"), "{refused}");
    }
}
