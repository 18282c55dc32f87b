//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial, ttl};
use testkit_servers::EtcdKind;

use crate::site::Servers;

/// In a soak: the shortest one that etcd keeps to.
const TTL: Duration = Duration::from_secs(2);

/// How long it may take after a leader was lost: its term must run out.
const LOST: Duration = TTL.saturating_add(Duration::from_secs(1));

/// The same after one has resigned.
const RESIGNED: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_etcd() {
    let servers = Servers::start(EtcdKind::Etcd34).await;
    let trial = Trial::start(&servers, "site::worker", ttl(TTL));
    let verdict = trial.changes(Fault::MOST).await;
    println!("measured: leaders in {}: {verdict}", EtcdKind::Etcd34);
    verdict.assert_one_leader();
    verdict.assert_in_time(LOST, RESIGNED);
}
