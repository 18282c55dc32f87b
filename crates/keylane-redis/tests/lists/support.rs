//! A list of its own for each test, on servers that the tests of this binary share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_redis::{ListBuilder, ListQueue, Redis};
pub(crate) use keylane_testkit::scenario::until_async as until;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use testkit_servers::RedisKind;
use tokio::sync::OnceCell;

static SHARED: [OnceCell<Arc<testkit_servers::Redis>>; 3] = [const { OnceCell::const_new() }; 3];

/// The server of this kind that the tests share.
pub(crate) async fn shared(kind: RedisKind) -> Arc<testkit_servers::Redis> {
    let place = RedisKind::ALL
        .iter()
        .position(|other| *other == kind)
        .unwrap();
    let server = SHARED[place].get_or_init(async || own(kind).await).await;
    Arc::clone(server)
}

/// A server for one test.
pub(crate) async fn own(kind: RedisKind) -> Arc<testkit_servers::Redis> {
    Arc::new(testkit_servers::Redis::start(kind).await.unwrap())
}

/// A name that no other test of this binary has.
pub(crate) fn new_name(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a builder of a queue, with a short lease.
pub(crate) fn builder(url: &str, list: &str) -> ListBuilder {
    let redis = Redis::at(url).unwrap();
    ListQueue::builder(&redis, list.to_owned()).lease(Duration::from_secs(2))
}

/// A connection of the test's own, for commands that no queue sends.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.unwrap()
}
