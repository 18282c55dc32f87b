//! A worker that leads, and what it writes.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Term;
use keylane_zookeeper::{FenceError, ZooKeeper, ZooKeeperLeases};
use testkit_processes::elections::{Answer, Candidacy, Sink, Write, ttl};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::site::{FENCED, PLAIN, TICK, name};

/// The session of a candidate, in a soak.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// A session that outlives all faults.
const LONG: Duration = Duration::from_secs(1_000);

struct Nodes {
    leases: Arc<ZooKeeperLeases>,
    plain: Client,
}

impl Sink for Nodes {
    async fn fenced(&self, term: &Term, write: Write) -> Answer {
        let path = format!("{FENCED}/{}", name(write));
        let fenced = self.leases.fence(term.key().clone(), term.token());
        match fenced.create(path, "").commit().await {
            Ok(()) => Answer::Accepted,
            Err(FenceError::Fenced(_)) => Answer::Refused,
            Err(_) => Answer::Unknown,
        }
    }

    async fn plain(&self, write: Write) {
        let path = format!("{PLAIN}/{}", name(write));
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        // The servers may be away.
        let _ = self.plain.create(&path, b"", &options).await;
    }
}

/// The worker: this program again.
#[test]
fn worker() {
    let Some(candidacy) = Candidacy::assigned() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let zookeeper = ZooKeeper::at(candidacy.address()).unwrap();
        let zookeeper = zookeeper.server_tick(TICK).session_timeout(ttl(SESSION));
        let leases = ZooKeeperLeases::open(&zookeeper.unwrap(), "/jobs").unwrap();
        let leases = Arc::new(leases);
        let connector = Client::connector().with_session_timeout(LONG);
        let sink = Nodes {
            leases: Arc::clone(&leases),
            plain: connector.connect(candidacy.address()).await.unwrap(),
        };
        candidacy.run(leases, sink).await;
    });
}
