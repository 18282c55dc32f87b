//! What a thousand leaders cost.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Elections;
use keylane_sql::{Database, SqlElections, Tables};
use testkit_processes::elections::Crowd;
use testkit_servers::{MariaDb, Postgres};

/// The default of a candidate.
const TTL: Duration = Duration::from_secs(10);

async fn measured(name: &str, url: &str, server: u32) {
    let database = Database::connect(url).await.unwrap();
    database.migrate(&Tables::new()).await.unwrap();
    let store = SqlElections::open(&database, &Tables::new()).await.unwrap();
    let elections = Elections::open(Arc::new(store)).unwrap();
    let crowd = Crowd::measure(&elections, 1_000, TTL, server).await;
    println!("measured: {name}: {crowd}");
    crowd.assert_all_lead();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_thousand_leaders_over_one_pool() {
    let postgres = Postgres::start().await.unwrap();
    let url = postgres.create_database().await.unwrap();
    measured("PostgreSQL", &url, postgres.pid().unwrap()).await;
    let mariadb = MariaDb::start().await.unwrap();
    let url = mariadb.create_database().await.unwrap();
    measured("MariaDB", &url, mariadb.pid().unwrap()).await;
}
