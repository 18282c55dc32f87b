//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial};

use crate::site::Servers;

/// It fits into the sessions of the workers.
const TTL: Duration = Duration::from_millis(1_300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_zookeeper() {
    let servers = Servers::start().await;
    let trial = Trial::start(&servers, "worker::worker", TTL);
    let verdict = trial.changes(Fault::MOST).await;
    println!("measured: leaders in an ensemble of ZooKeeper: {verdict}");
    verdict.assert_one_leader();
    verdict.assert_in_time(TTL);
}
