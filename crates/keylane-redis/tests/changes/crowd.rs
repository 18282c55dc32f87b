//! What a thousand leaders cost.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Elections;
use keylane_redis::{Redis, RedisElections};
use testkit_processes::elections::Crowd;
use testkit_servers::RedisKind;

/// The default of a candidate.
const TTL: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_thousand_leaders_over_one_connection() {
    for kind in [RedisKind::Redis8, RedisKind::Valkey9] {
        let server = testkit_servers::Redis::start(kind).await.unwrap();
        let redis = Redis::at(&server.url()).unwrap();
        let store = RedisElections::open(&redis, "jobs").unwrap();
        let elections = Elections::open(Arc::new(store)).unwrap();
        let crowd = Crowd::measure(&elections, 1_000, TTL, server.pid().unwrap()).await;
        println!("measured: {kind}: {crowd}");
        crowd.assert_all_lead();
    }
}
