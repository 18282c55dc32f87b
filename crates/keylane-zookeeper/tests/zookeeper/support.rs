//! Servers, stores and clients for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_leases::Token;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, Client, CreateMode};

/// The tick of the servers of the kit.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// The session time-out of most tests: the longest that servers of this tick accept.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

/// A time to live that fits into it.
pub(crate) const TTL: Duration = Duration::from_millis(2_500);

/// How long something may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static SHARED: OnceCell<testkit_servers::ZooKeeper> = OnceCell::const_new();

/// The server that tests share which do not disturb it. Its sessions can be long.
pub(crate) async fn shared() -> &'static testkit_servers::ZooKeeper {
    let start = || async {
        let builder = testkit_servers::ZooKeeper::builder();
        let long = builder.tick(TICK).property("maxSessionTimeout", "2000000");
        long.start().await.unwrap()
    };
    SHARED.get_or_init(start).await
}

/// A root that no other test of this binary has.
pub(crate) fn new_root() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("/tests/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with a session of its own.
pub(crate) fn store(hosts: &str, root: &str, session_timeout: Duration) -> Arc<ZooKeeperLeases> {
    let zookeeper = ZooKeeper::at(hosts).unwrap().server_tick(TICK);
    let zookeeper = zookeeper.session_timeout(session_timeout).unwrap();
    Arc::new(ZooKeeperLeases::open(&zookeeper, root).unwrap())
}

/// An owner with a store and a session of its own.
pub(crate) struct Process {
    pub(crate) store: Arc<ZooKeeperLeases>,
    pub(crate) owner: Owner,
}

impl Process {
    pub(crate) fn new(hosts: &str, root: &str) -> Self {
        Self {
            store: store(hosts, root, TIMEOUT),
            owner: Owner::random(),
        }
    }

    /// Asks once for a lease. An error is `None`.
    pub(crate) async fn ask(&self, key: &str) -> Option<Answer> {
        let wishes = [Wish::new(key.to_owned(), TTL)];
        let answers = self.store.acquire(&self.owner, &wishes).await;
        answers.ok().map(|answers| answers[0])
    }

    /// The token of a lease that is free.
    pub(crate) async fn granted(&self, key: &str) -> Token {
        match self.ask(key).await {
            Some(Answer::Granted(token)) => token,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// The token of a lease, when it is free.
    pub(crate) async fn granted_at_last(&self, key: &str) -> Token {
        let began = Instant::now();
        loop {
            if let Some(Answer::Granted(token)) = self.ask(key).await {
                return token;
            }
            assert!(began.elapsed() < PATIENCE, "{key} is not granted");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn is_taken(&self, key: &str) -> bool {
        matches!(self.ask(key).await, Some(Answer::Taken { .. }))
    }

    /// Whether a renewal was confirmed. An error is `None`.
    pub(crate) async fn renew(&self, key: &str, token: Token) -> Option<bool> {
        let claims = [Claim::new(key.to_owned(), token, TTL)];
        let answers = self.store.renew(&self.owner, &claims).await;
        answers.ok().map(|answers| answers[0])
    }

    pub(crate) async fn release(&self, key: &str, token: Token) {
        let claims = [Claim::new(key.to_owned(), token, TTL)];
        self.store.release(&self.owner, &claims).await.unwrap();
    }
}

/// A client that looks at nodes, and makes some.
pub(crate) async fn client(hosts: &str) -> Client {
    Client::connect(hosts).await.unwrap()
}

pub(crate) async fn make(client: &Client, path: &str, data: &str) {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(path, &options).await.unwrap();
    client.set_data(path, data.as_bytes(), None).await.unwrap();
}

pub(crate) async fn read(client: &Client, path: &str) -> String {
    client.sync(path).await.unwrap();
    let (data, _) = client.get_data(path).await.unwrap();
    String::from_utf8(data).unwrap()
}
