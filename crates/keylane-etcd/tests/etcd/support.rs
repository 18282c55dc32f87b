//! Servers that the tests of this binary share, and a namespace of its own for each test.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylane_etcd::etcd_client::Client;
use keylane_etcd::{Etcd, EtcdLeases};
use keylane_leases::error::AcquireError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use keylane_leases::{Leases, Settings, Token};
use testkit_servers::proxy::Proxy;
use testkit_servers::{EtcdKind, etcd};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

/// The shortest time to live that etcd keeps to, with its default election time-out.
pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

/// Longer than a test takes.
pub(crate) const LONG: Duration = Duration::from_secs(600);

static SHARED: [OnceCell<testkit_servers::Etcd>; 2] = [const { OnceCell::const_new() }; 2];

/// The versions that are installed: 3.7 is missing where there is no Go.
pub(crate) fn kinds() -> Vec<EtcdKind> {
    let kinds = EtcdKind::ALL
        .into_iter()
        .filter(|kind| etcd::is_there(*kind));
    let kinds = Vec::from_iter(kinds);
    assert!(kinds.contains(&EtcdKind::Etcd34), "run `cargo xtask setup`");
    if kinds.len() < EtcdKind::ALL.len() {
        println!("left out: etcd 3.7 is not built here");
    }
    kinds
}

/// Runs a test with each version, all at the same time.
pub(crate) async fn each_kind<F: Future>(test: impl Fn(EtcdKind) -> F) {
    join_all(kinds().into_iter().map(test)).await;
}

/// The server of this version that the tests share.
pub(crate) async fn shared(kind: EtcdKind) -> &'static testkit_servers::Etcd {
    let place = EtcdKind::ALL.iter().position(|other| *other == kind);
    SHARED[place.unwrap()].get_or_init(|| own(kind)).await
}

/// A server for one test.
pub(crate) async fn own(kind: EtcdKind) -> testkit_servers::Etcd {
    testkit_servers::Etcd::start(kind).await.unwrap()
}

/// A namespace that no other test of this binary has.
pub(crate) fn new_namespace() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with a connection of its own.
pub(crate) fn store(url: &str, namespace: &str) -> Arc<EtcdLeases> {
    let etcd = Etcd::at([url]).unwrap();
    Arc::new(EtcdLeases::open(&etcd, namespace).unwrap())
}

/// The leases of a process, with a connection of its own.
pub(crate) fn leases(url: &str, namespace: &str) -> Leases {
    let settings = Settings::new().call_limit(Duration::from_secs(2));
    Leases::open_with(store(url, namespace), settings).unwrap()
}

/// A client of an operator.
pub(crate) async fn client(server: &testkit_servers::Etcd) -> Client {
    Client::connect([server.url()], None).await.unwrap()
}

/// The address of a proxy.
pub(crate) fn by(proxy: &Proxy) -> String {
    format!("http://127.0.0.1:{}", proxy.port())
}

/// Acquires one key.
pub(crate) async fn acquire(store: &EtcdLeases, owner: &Owner, key: &str, ttl: Duration) -> Answer {
    let wishes = [Wish::new(key.to_owned(), ttl)];
    store.acquire(owner, &wishes).await.unwrap()[0]
}

/// Acquires one key that is free.
pub(crate) async fn granted(store: &EtcdLeases, owner: &Owner, key: &str, ttl: Duration) -> Claim {
    match acquire(store, owner, key, ttl).await {
        Answer::Granted(token) => Claim::new(key.to_owned(), token, ttl),
        taken => panic!("{key}: {taken:?}"),
    }
}

/// Renews one claim.
pub(crate) async fn renew(store: &EtcdLeases, owner: &Owner, claim: &Claim) -> bool {
    let claims = std::slice::from_ref(claim);
    store.renew(owner, claims).await.unwrap()[0]
}

pub(crate) fn token_of(answer: Answer) -> Option<Token> {
    match answer {
        Answer::Granted(token) => Some(token),
        _ => None,
    }
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
    let answer = timeout(Duration::from_secs(60), answer).await;
    answer.expect("the store answers within a minute")
}
