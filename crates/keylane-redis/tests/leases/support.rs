//! A namespace of its own for each test, on servers that the tests of this binary share.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylane_leases::error::AcquireError;
use keylane_leases::{Leases, Settings};
use keylane_redis::{Redis, RedisLeases};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

static SHARED: [OnceCell<testkit_servers::Redis>; 3] = [const { OnceCell::const_new() }; 3];

/// The server of this kind that the tests share.
pub(crate) async fn shared(kind: RedisKind) -> &'static testkit_servers::Redis {
    let place = RedisKind::ALL.iter().position(|other| *other == kind);
    let server = SHARED[place.unwrap()].get_or_init(|| own(kind));
    server.await
}

/// A server for one test.
pub(crate) async fn own(kind: RedisKind) -> testkit_servers::Redis {
    testkit_servers::Redis::start(kind).await.unwrap()
}

/// A namespace that no other test of this binary has.
pub(crate) fn new_namespace() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("leases-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with a connection of its own.
pub(crate) fn store(url: &str, namespace: &str) -> Arc<RedisLeases> {
    let redis = Redis::at(url).unwrap();
    Arc::new(RedisLeases::open(&redis, namespace.to_owned()).unwrap())
}

/// The leases of a process, with a connection of its own.
pub(crate) fn leases(url: &str, namespace: &str) -> Leases {
    Leases::open_with(store(url, namespace), Settings::new()).unwrap()
}

/// Leases through a proxy, the same without it, and the server, which is the test's own.
pub(crate) struct ByProxy {
    pub(crate) server: testkit_servers::Redis,
    pub(crate) proxy: Proxy,
    pub(crate) here: Leases,
    pub(crate) there: Leases,
}

impl ByProxy {
    pub(crate) async fn start(kind: RedisKind) -> Self {
        let server = own(kind).await;
        let proxy = proxy(server.port()).await;
        let by_proxy = format!("redis://127.0.0.1:{}/", proxy.port());
        Self {
            here: leases(&by_proxy, "leases"),
            there: leases(&server.url(), "leases"),
            server,
            proxy,
        }
    }
}

/// Runs a test with each kind of server, all at the same time.
pub(crate) async fn each_kind<F: Future>(test: impl Fn(RedisKind) -> F) {
    join_all(RedisKind::ALL.map(test)).await;
}

/// A proxy in front of a port of this machine.
pub(crate) async fn proxy(port: u16) -> Proxy {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Proxy::to(server).await.unwrap()
}

/// Executes a command, given as its words, which the server must accept.
pub(crate) async fn execute(server: &testkit_servers::Redis, command: &str) -> String {
    let words = Vec::from_iter(command.split(' '));
    let answer = server.execute(&words).await;
    answer.unwrap_or_else(|error| panic!("{}: `{command}`: {error}", server.kind()))
}

/// Repeats a call while the store cannot answer.
pub(crate) async fn answered<T, F>(call: impl Fn() -> F) -> Result<T, AcquireError>
where
    F: Future<Output = Result<T, AcquireError>>,
{
    let answer = async {
        loop {
            match call().await {
                Err(AcquireError::Store(_)) => sleep(Duration::from_millis(20)).await,
                answer => return answer,
            }
        }
    };
    let answer = timeout(Duration::from_secs(30), answer).await;
    answer.expect("the store answers within 30 seconds")
}
