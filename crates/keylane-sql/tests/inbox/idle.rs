//! Connections that are idle for too long: the server, or something between, ends them. A source that
//! holds nothing connects anew, and an operator hears of nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use keylane_inbox::Inbox;
use keylane_sql::{Database, SourceSettings, sqlx};
use keylane_testkit::Lines;
use keylane_testkit::scenario::{until, until_async};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit_servers::proxy::Proxy;
use tokio::time::Instant;

use crate::rig::{Log, Own, Work, Worker, log_to, message};
use crate::support::{Kind, Place};

/// How many connections are made anew, at least.
const ANEW: u64 = 5;

const PATIENCE: Duration = Duration::from_secs(120);

/// How long a call waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(2);

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

/// A source that looks by itself more rarely than sessions end; never, where it is told of messages.
fn told(kind: Kind) -> Work {
    let mut work = Work::new();
    let settings = SourceSettings::new().lease(Duration::from_secs(15));
    work.source = settings.poll(match kind {
        Kind::Postgres => Duration::from_secs(3_600),
        Kind::MariaDb => Duration::from_secs(3),
    });
    work
}

/// Accepts, until a call succeeds.
async fn accept(inbox: &Inbox, id: u64) {
    until_async("it is accepted", async || {
        inbox.accept_message(message(1, id)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn sessions_that_the_server_ends_are_made_anew() {
    for kind in KINDS {
        let server = Own::start(kind).await;
        let place = server.place().await.migrated().await;
        let (_, name) = place.address.rsplit_once('/').unwrap();
        place
            .execute(match kind {
                Kind::Postgres => format!("alter database {name} set idle_session_timeout = '1s'"),
                Kind::MariaDb => "set global wait_timeout = 1".to_owned(),
            })
            .await;
        let (lines, log) = (Lines::new(), Log::default());
        let logs = log_to(&lines);
        let proxy = proxy_to(&place).await;
        let address = place.address_by(proxy.port());
        let worker = Worker::start(&address, 0, &log, told(kind)).await;
        let leases = place.leases().await;
        let before = proxy.traffic().accepted;
        until(|| proxy.traffic().accepted >= before + ANEW).await;
        worker
            .inbox
            .inbox()
            .accept_message(message(1, 1))
            .await
            .unwrap();
        until(|| log.handled().contains(&1)).await;
        leases
            .acquire("key", Duration::from_secs(10))
            .await
            .unwrap()
            .release()
            .await;
        is_well(&worker, &lines, kind).await;
        drop(logs);
    }
}

#[tokio::test]
async fn connections_that_are_closed_are_made_anew() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let proxy = proxy_to(&place).await;
        let (lines, log) = (Lines::new(), Log::default());
        let logs = log_to(&lines);
        let address = place.address_by(proxy.port());
        let worker = Worker::start(&address, 0, &log, told(kind)).await;
        let inbox = place.inbox().await.inbox();
        accept(&inbox, 1).await;
        until(|| log.handled().contains(&1)).await;
        for id in 2..=4 {
            // The source holds nothing.
            place.is_empty_within(PATIENCE).await;
            proxy.reset();
            accept(&inbox, id).await;
            until(|| log.handled().contains(&id)).await;
        }
        is_well(&worker, &lines, kind).await;
        drop(logs);
    }
}

/// What was connected before is never answered again, and what is connected from now on is.
#[tokio::test]
async fn connections_that_are_silent_are_made_anew() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let proxy = proxy_to(&place).await;
        let (lines, log) = (Lines::new(), Log::default());
        let logs = log_to(&lines);
        let (database, point_to) = pool(kind, &place.address_by(proxy.port())).await;
        let worker = Worker::start_in(&database, 0, &log, told(kind)).await;
        accept(&worker.inbox.inbox(), 1).await;
        until(|| log.handled().contains(&1)).await;
        place.is_empty_within(PATIENCE).await;
        proxy.cut();
        point_to(&place.address);
        accept(&place.inbox().await.inbox(), 2).await;
        until(|| log.handled().contains(&2)).await;
        // And in the same process.
        accept(&worker.inbox.inbox(), 3).await;
        until(|| log.handled().contains(&3)).await;
        is_well(&worker, &lines, kind).await;
        drop(logs);
    }
}

/// A pool by this address, and the means to send its next connections to another one.
async fn pool(kind: Kind, address: &str) -> (Database, Box<dyn Fn(&str)>) {
    match kind {
        Kind::Postgres => {
            let options = PgPoolOptions::new().acquire_timeout(ACQUIRE);
            let pool = options.connect(address).await.unwrap();
            let point_to = pool.clone();
            let point_to = move |address: &str| {
                point_to.set_connect_options(PgConnectOptions::from_str(address).unwrap());
            };
            (Database::postgres(pool), Box::new(point_to))
        }
        Kind::MariaDb => {
            let options = MySqlPoolOptions::new().acquire_timeout(ACQUIRE);
            let pool = options.connect(address).await.unwrap();
            let point_to = pool.clone();
            let point_to = move |address: &str| {
                point_to.set_connect_options(MySqlConnectOptions::from_str(address).unwrap());
            };
            (Database::mysql(pool), Box::new(point_to))
        }
    }
}

async fn proxy_to(place: &Place) -> Proxy {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, place.port()));
    Proxy::to(server).await.unwrap()
}

/// Nothing has been said to an operator.
async fn is_well(worker: &Worker, lines: &Lines, kind: Kind) {
    let stats = worker.stats();
    assert_eq!(
        (stats.restarts, stats.last_error),
        (0, None),
        "{kind:?}: {:#?}",
        lines.with("keylane")
    );
    let hold = stats.hold.expect("its claims are held");
    assert!(hold.until > Instant::now(), "{hold:?}");
    assert_eq!(hold.lasts, Duration::from_millis(13_500), "of 15 seconds");
    worker.stop().await;
    let errors = lines.with("ERROR");
    assert!(errors.is_empty(), "{kind:?}: {errors:#?}");
}

/// What listens has a connection of its own.
#[tokio::test]
async fn a_pool_of_one_connection_is_enough_for_a_source() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let (log, address) = (Log::default(), &place.address);
        let database = match kind {
            Kind::Postgres => {
                let options = PgPoolOptions::new().max_connections(1);
                let pool = options.acquire_timeout(PATIENCE).connect(address);
                Database::postgres(pool.await.unwrap())
            }
            Kind::MariaDb => {
                let options = MySqlPoolOptions::new().max_connections(1);
                let pool = options.acquire_timeout(PATIENCE).connect(address);
                Database::mysql(pool.await.unwrap())
            }
        };
        let worker = Worker::start_in(&database, 0, &log, told(kind)).await;
        for id in 1..=20 {
            accept(&worker.inbox.inbox(), id).await;
            until(|| log.handled().contains(&id)).await;
        }
        let stats = worker.stats();
        assert_eq!((stats.restarts, stats.last_error), (0, None), "{kind:?}");
        worker.stop().await;
    }
}
