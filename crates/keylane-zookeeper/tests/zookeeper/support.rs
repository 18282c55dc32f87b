//! Servers and stores for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
use tokio::sync::OnceCell;

/// The tick of the servers of the kit.
pub(crate) const TICK: Duration = Duration::from_millis(200);

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
