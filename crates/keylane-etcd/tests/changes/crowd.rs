//! What a thousand leaders cost.

use std::sync::Arc;
use std::time::Duration;

use keylane_etcd::{Etcd, EtcdElections};
use keylane_leader::Elections;
use testkit_processes::elections::Crowd;
use testkit_servers::EtcdKind;

/// The default of a candidate.
const TTL: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_thousand_leaders_over_one_connection() {
    for kind in [EtcdKind::Etcd34, EtcdKind::Etcd37] {
        let server = testkit_servers::Etcd::start(kind).await.unwrap();
        let etcd = Etcd::at([server.url()]).unwrap();
        let store = EtcdElections::open(&etcd, "jobs").unwrap();
        let elections = Elections::open(Arc::new(store)).unwrap();
        let crowd = Crowd::measure(&elections, 1_000, TTL, server.pid().unwrap()).await;
        println!("measured: {kind}: {crowd}");
        crowd.assert_all_lead();
    }
}
