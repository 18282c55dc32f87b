//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial};

use crate::site::{Kind, Servers};

const TTL: Duration = Duration::from_secs(1);

async fn judged(kind: Kind) {
    let servers = Servers::start(kind).await;
    let trial = Trial::start(&servers, "worker::worker", TTL);
    let verdict = trial.changes(Fault::MOST).await;
    println!("measured: leaders in {kind:?}: {verdict}");
    verdict.assert_one_leader();
    verdict.assert_in_time(TTL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_postgres() {
    judged(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_mariadb() {
    judged(Kind::MariaDb).await;
}
