//! Databases whose clock is set while workers are busy. What is ready is handled, whatever time it is.

use std::time::Duration;

use keylane::source::{Deliveries, Source};
use keylane_sql::SourceSettings;
use testkit_servers::{Clock, MariaDb, Postgres};
use tokio::time::{Instant, sleep};

use crate::rig::{Log, TTL, Work, Worker, message, until};
use crate::support::{Kind, Place};

const KEYS: u64 = 16;

/// How long it may take to handle what is there. It is much less than the clock is set by.
const SOON: Duration = Duration::from_secs(60);

const HOUR: i64 = 3_600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_whose_clock_goes_back_or_forward_holds_nothing_up() {
    let (server, clock) = Postgres::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    set(Kind::Postgres, address, &clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_whose_clock_goes_back_or_forward_holds_nothing_up() {
    let (server, clock) = MariaDb::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    set(Kind::MariaDb, address, &clock).await;
}

/// One key is in the middle of its work and others wait when the clock is set; more are accepted then.
async fn set(kind: Kind, address: String, clock: &Clock) {
    let place = Place::at(kind, address).await.migrated().await;
    let inbox = place.inbox().await.inbox();
    let log = Log::default();
    let mut sent = 0;
    for seconds in [20, 0, HOUR, 0, -20, 0, -HOUR, 0] {
        let accept = async |sent: &mut u64, count: u64| {
            let ids = *sent + 1..=*sent + count;
            *sent += count;
            let accepted = inbox.accept_many(ids.map(|id| message(id % KEYS, id)));
            accepted.await.unwrap();
        };
        accept(&mut sent, 40).await;
        let mut work = Work::new();
        // The others wait, and are ready since before.
        work.source = work.source.keys(1);
        work.takes = |_| Duration::from_millis(10);
        let worker = Worker::start(&place.address, 0, &log, work).await;
        until(SOON, || log.handled().len() as u64 > sent - 40).await;
        clock.set(seconds).unwrap();
        accept(&mut sent, 40).await;
        until(SOON, || log.handled().len() as u64 == sent).await;
        accept(&mut sent, 40).await;
        until(SOON, || log.handled().len() as u64 == sent).await;
        place.is_empty_within(SOON).await;
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_the_dead_are_late_by_no_more_than_their_own_step_in_postgres() {
    let (server, clock) = Postgres::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    dead(Kind::Postgres, address, &clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_the_dead_are_late_by_no_more_than_their_own_step_in_mariadb() {
    let (server, clock) = MariaDb::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    dead(Kind::MariaDb, address, &clock).await;
}

/// A worker that renews its claims after the clock was set, and dies then, leaves its keys after the
/// time that they last, and not an hour later.
async fn dead(kind: Kind, address: String, clock: &Clock) {
    let place = Place::at(kind, address).await.migrated().await;
    let inbox = place.inbox().await;
    let log = Log::default();
    for (id, seconds) in (1..).zip([HOUR, 0, -HOUR, 0]) {
        inbox.inbox().accept_message(message(1, id)).await.unwrap();
        let mut dies = inbox.source_with(SourceSettings::new().lease(TTL));
        dies.open().await.unwrap();
        let mut into = Deliveries::new(1, Instant::now() + SOON);
        dies.receive(&mut into).await.unwrap();
        assert_eq!(into.len(), 1);
        clock.set(seconds).unwrap();
        // Time for it to renew, or to find that the jump has ended its claims.
        sleep(TTL).await;
        drop(dies);
        let lives = Worker::start(&place.address, 1, &log, Work::new()).await;
        until(SOON, || log.handled().len() as u64 == id).await;
        lives.stop().await;
    }
}
