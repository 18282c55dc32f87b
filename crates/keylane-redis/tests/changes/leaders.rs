//! One leader at a time, over all faults.

use std::time::Duration;

use testkit_processes::elections::{Fault, Trial, ttl};
use testkit_servers::RedisKind;

use crate::site::Servers;

const TTL: Duration = Duration::from_secs(1);

/// How long it may take after a leader was lost: its term must run out.
const LOST: Duration = TTL.saturating_add(Duration::from_secs(1));

/// The same after one has resigned.
const RESIGNED: Duration = Duration::from_millis(100);

async fn judged(kind: RedisKind) {
    let servers = Servers::start(kind).await;
    let trial = Trial::start(&servers, "site::worker", ttl(TTL));
    let verdict = trial.changes(&Fault::ALL).await;
    println!("measured: leaders in {kind}: {verdict}");
    verdict.assert_one_leader();
    verdict.assert_in_time(LOST, RESIGNED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_in_redis() {
    judged(RedisKind::Redis8).await;
}
