//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial, ttl};

use crate::site::Servers;
use crate::worker::SESSION;

/// In a soak. It fits into the sessions of the workers.
const TTL: Duration = Duration::from_millis(1_300);

/// How long it may take after a leader was lost: its session must end.
const LOST: Duration = SESSION.saturating_add(Duration::from_secs(1));

/// The same after one has resigned.
const RESIGNED: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_zookeeper() {
    let servers = Servers::start().await;
    let trial = Trial::start(&servers, "worker::worker", ttl(TTL));
    let verdict = trial.changes(Fault::MOST).await;
    println!("measured: leaders in an ensemble of ZooKeeper: {verdict}");
    verdict.assert_one_leader();
    verdict.assert_in_time(LOST, RESIGNED);
}
