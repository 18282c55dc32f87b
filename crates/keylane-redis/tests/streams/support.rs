//! Streams of its own for each test, on servers that the tests of this binary share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane::source::{
    Deliveries, Delivery, Outcome, RawMessage, Received, Settlement, Source as _,
};
use keylane_leases::{Leases, MemoryStore};
use keylane_redis::{Redis, StreamBuilder, StreamPosition, StreamSource};
pub(crate) use keylane_testkit::scenario::until_async as until;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value, cmd};
use testkit_servers::RedisKind;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A short lease. After this time another process takes over from one that is gone.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// The longest wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

static SHARED: [OnceCell<Arc<testkit_servers::Redis>>; 3] = [const { OnceCell::const_new() }; 3];

/// Shows the logs of the source with `RUST_LOG=keylane`, if the test fails.
pub(crate) fn show_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    // Another test may have done so.
    let _ = subscriber.with_test_writer().try_init();
}

/// The server of this kind that the tests share.
pub(crate) async fn shared(kind: RedisKind) -> Arc<testkit_servers::Redis> {
    show_log();
    let place = RedisKind::ALL.iter().position(|other| *other == kind);
    let server = &SHARED[place.unwrap()];
    Arc::clone(server.get_or_init(async || own(kind).await).await)
}

/// A server for one test.
pub(crate) async fn own(kind: RedisKind) -> Arc<testkit_servers::Redis> {
    show_log();
    Arc::new(testkit_servers::Redis::start(kind).await.unwrap())
}

/// A name that no other test of this binary has.
pub(crate) fn new_name(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A builder with a lease that no pause of the machine ends.
pub(crate) fn builder(url: &str, group: &str) -> StreamBuilder {
    let redis = Redis::at(url).unwrap();
    StreamSource::builder(&redis, group.to_owned()).lease(20 * LEASE)
}

/// A builder for a user who may not ask for the time. Leases do, so they are elsewhere.
pub(crate) async fn builder_without_time(
    server: &testkit_servers::Redis,
    client: &Client,
    group: &str,
) -> StreamBuilder {
    let user = new_name("timeless");
    let rights = ["on", ">pw", "~*", "&*", "+@all", "-time"];
    let rule = [&["ACL", "SETUSER", &user], &rights[..]].concat();
    client.run::<()>(&rule).await;
    let as_user = format!("redis://{user}:pw@");
    let url = server.url().replacen("redis://", &as_user, 1);
    let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
    builder(&url, group).leases(leases)
}

/// A connection of the test's own.
#[derive(Clone)]
pub(crate) struct Client(MultiplexedConnection);

impl Client {
    pub(crate) async fn to(server: &testkit_servers::Redis) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Self(connection.await.unwrap())
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query_async(&mut self.0.clone()).await.unwrap()
    }

    /// Sends a command that may be refused.
    pub(crate) async fn try_ask<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        command.query_async(&mut self.0.clone()).await
    }

    /// Sends a command, given as its words.
    pub(crate) async fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        self.ask(&command).await
    }

    /// Sends several commands.
    pub(crate) async fn steps(&self, steps: &redis::Pipeline) {
        let _: Value = steps.query_async(&mut self.0.clone()).await.unwrap();
    }

    /// Adds an entry with a key and a payload, and returns its id.
    pub(crate) async fn add(&self, stream: &str, key: &str, payload: &str) -> String {
        let words = ["XADD", stream, "*", "key", key, "payload", payload];
        self.run(&words).await
    }

    /// Adds this many entries of a few keys, with their numbers as payloads.
    pub(crate) async fn add_all(&self, stream: &str, numbers: std::ops::Range<u64>) -> Vec<String> {
        let mut ids = Vec::new();
        for number in numbers {
            let key = format!("key-{}", number % 3);
            ids.push(self.add(stream, &key, &number.to_string()).await);
        }
        ids
    }

    /// Returns the pending ids of a group, with their counts.
    pub(crate) async fn pending(&self, stream: &str, group: &str) -> Vec<(String, u64)> {
        let words = ["XPENDING", stream, group, "-", "+", "10000"];
        let pending: Vec<(String, String, u64, u64)> = self.run(&words).await;
        pending
            .into_iter()
            .map(|(id, _, _, count)| (id, count))
            .collect()
    }

    /// Returns how many entries would still be handed over to a group.
    pub(crate) async fn left(&self, stream: &str, group: &str) -> usize {
        let groups = self.groups(stream).await;
        match groups.into_iter().find(|(name, ..)| name == group) {
            None => self.run(&["XLEN", stream]).await,
            Some((_, pending, last)) if last == format!("{0}-{0}", u64::MAX) => pending,
            Some((_, pending, last)) => {
                let from = format!("({last}");
                let new: Vec<Value> = self.run(&["XRANGE", stream, &from, "+"]).await;
                pending + new.len()
            }
        }
    }

    /// The groups of a stream: name, pending, last delivered.
    async fn groups(&self, stream: &str) -> Vec<(String, usize, String)> {
        let exists: bool = self.run(&["EXISTS", stream]).await;
        if !exists {
            return Vec::new();
        }
        let groups: Vec<std::collections::HashMap<String, Value>> =
            self.run(&["XINFO", "GROUPS", stream]).await;
        let group = |group: std::collections::HashMap<String, Value>| {
            fn of<T: FromRedisValue>(value: &Value) -> T {
                T::from_redis_value(value.clone()).unwrap()
            }
            (
                of(&group["name"]),
                of(&group["pending"]),
                of(&group["last-delivered-id"]),
            )
        };
        groups.into_iter().map(group).collect()
    }
}

/// A source that a test drives itself.
pub(crate) struct Driven(pub(crate) StreamSource);

pub(crate) type Handed = Vec<Delivery<RawMessage, StreamPosition>>;

/// The payloads of deliveries.
pub(crate) fn payloads(handed: &Handed) -> Vec<String> {
    let payloads = handed.iter().map(|one| one.message.payload.to_vec());
    payloads
        .map(|payload| String::from_utf8(payload).unwrap())
        .collect()
}

/// Numbers as payloads.
pub(crate) fn texts(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect()
}

impl Driven {
    pub(crate) async fn open(source: StreamSource) -> Self {
        let mut driven = Self(source);
        driven.0.open().await.unwrap();
        driven
    }

    /// Receives once, for up to this time.
    pub(crate) async fn once(
        &mut self,
        room: usize,
        wait: Duration,
    ) -> (Handed, Received<StreamPosition>) {
        let mut into = Deliveries::new(room, Instant::now() + wait);
        let received = self.0.receive(&mut into).await.unwrap();
        (into.take(), received)
    }

    /// Receives this many.
    pub(crate) async fn receive(&mut self, count: usize) -> Handed {
        let until = Instant::now() + PATIENCE;
        let mut handed = Vec::new();
        while handed.len() < count {
            assert!(Instant::now() < until, "only {:?} came", payloads(&handed));
            let (more, _) = self
                .once(count - handed.len(), Duration::from_millis(500))
                .await;
            handed.extend(more);
        }
        handed
    }

    /// Receives all entries that come in this time.
    pub(crate) async fn receive_for(&mut self, time: Duration) -> Handed {
        let until = Instant::now() + time;
        let mut handed = Vec::new();
        while Instant::now() < until {
            let (more, _) = self.once(1_000, time / 4).await;
            handed.extend(more);
        }
        handed
    }

    pub(crate) async fn settle(&mut self, handed: &[Delivery<RawMessage, StreamPosition>]) {
        let done = handed
            .iter()
            .map(|one| Settlement::new(one.position, Outcome::Done));
        let done: Vec<_> = done.collect();
        self.0.settle(&done).await.unwrap();
    }

    pub(crate) async fn ack(&mut self, handed: &[Delivery<RawMessage, StreamPosition>]) {
        self.settle(handed).await;
        let confirmed = tokio::time::timeout(PATIENCE, self.0.confirm()).await;
        confirmed.expect("acks are taken in time").unwrap();
    }
}
