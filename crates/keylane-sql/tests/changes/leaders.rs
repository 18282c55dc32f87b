//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial, ttl};

use crate::site::{Kind, Servers};

/// In a soak.
const TTL: Duration = Duration::from_secs(1);

/// How long it may take after a leader was lost: its term must run out.
const LOST: Duration = TTL.saturating_add(Duration::from_secs(1));

/// The same after one has resigned. MariaDB announces nothing: a successor that was not the next one
/// looks three times in a time to live.
fn resigned(kind: Kind) -> Duration {
    let announced = Duration::from_millis(100);
    match kind {
        Kind::Postgres => announced,
        Kind::MariaDb => announced + TTL / 3,
    }
}

async fn judged(kind: Kind) {
    let servers = Servers::start(kind).await;
    let trial = Trial::start(&servers, "worker::worker", ttl(TTL));
    let verdict = trial.changes(Fault::MOST).await;
    println!("measured: leaders in {kind:?}: {verdict}");
    verdict.assert_one_leader();
    verdict.assert_in_time(LOST, resigned(kind));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_postgres() {
    judged(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_mariadb() {
    judged(Kind::MariaDb).await;
}
