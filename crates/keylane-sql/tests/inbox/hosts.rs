//! An address that names a primary and its standby: a `Database` follows the one that takes writes.

use std::time::Duration;

use keylane_sql::Database;
use keylane_sql::error::ErrorKind;
use keylane_testkit::scenario::{until, until_async};

use crate::rig::{Log, Work, Worker, message};
use crate::support::pair::Pair;
use crate::support::{Kind, Place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_two_postgres_follows_the_primary() {
    follows(Kind::Postgres, "?target_session_attrs=read-write").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_two_mariadb_follows_the_primary() {
    follows(Kind::MariaDb, "").await;
}

async fn follows(kind: Kind, parameters: &str) {
    let pair = Pair::start(kind).await;
    let place = Place::at(kind, pair.create_database().await).await;
    let place = place.migrated().await;
    let count = "select count(*) from keylane_messages";
    pair.until_same(&place.address, count).await;
    pair.set_read_only(true).await;
    let address = pair.both(&place.address, parameters);
    let log = Log::default();
    let worker = Worker::start(&address, 0, &log, Work::new()).await;
    // The first one takes no writes, and was not asked to.
    worker
        .inbox
        .inbox()
        .accept_message(message(1, 1))
        .await
        .unwrap();
    until(|| log.handled().contains(&1)).await;
    place.is_empty_within(Duration::from_secs(120)).await;
    pair.until_same(&place.address, count).await;
    pair.kill_primary().await;
    pair.promote().await;
    until_async("the other one accepts", async || {
        let accepted = worker.inbox.inbox().accept_message(message(1, 2)).await;
        accepted.is_ok()
    })
    .await;
    until(|| log.handled().contains(&2)).await;
    worker.stop().await;
}

#[tokio::test]
async fn servers_that_are_to_take_no_writes_are_refused() {
    let address = "postgres://one,two/orders?target_session_attrs=standby";
    let refused = Database::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Address, "{refused}");
}
