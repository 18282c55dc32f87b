//! What a thousand leaders cost.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Elections;
use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
use testkit_processes::elections::Crowd;

/// The default of a candidate.
const TTL: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_thousand_leaders_over_one_session() {
    let server = testkit_servers::ZooKeeper::builder();
    let server = server.tick(Duration::from_secs(2)).start().await.unwrap();
    let zookeeper = ZooKeeper::at(server.hosts()).unwrap();
    let store = ZooKeeperLeases::open(&zookeeper, "/jobs").unwrap();
    let elections = Elections::open(Arc::new(store)).unwrap();
    let crowd = Crowd::measure(&elections, 1_000, TTL, server.pid(0).unwrap()).await;
    println!("measured: ZooKeeper: {crowd}");
    crowd.assert_all_lead();
}
