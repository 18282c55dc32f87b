//! PgBouncer between: with a session for each client all works, and otherwise nothing is opened.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use keylane_leases::Leases;
use keylane_leases::error::AcquireError;
use keylane_sql::error::OpenError;
use keylane_sql::{Database, Settings, SqlInbox, SqlLeases, Tables, sqlx};
use keylane_testkit::scenario::{until, until_async};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit_servers::{Bouncer, Pooling, Postgres};
use tokio::task::JoinSet;

use crate::rig::{Log, What, Work, Worker, message};
use crate::support::{Kind, Place};

const KEYS: u64 = 10;

const PATIENCE: Duration = Duration::from_secs(120);

/// A server, a bouncer in front of it, and the place without the bouncer.
async fn start(pooling: Pooling) -> (Postgres, Bouncer, Place) {
    let server = Postgres::start().await.unwrap();
    let address = server.create_database().await.unwrap();
    let place = Place::at(Kind::Postgres, address).await.migrated().await;
    let bouncer = Bouncer::start(pooling, &server).await.unwrap();
    (server, bouncer, place)
}

/// Of each key, the messages that were handled, in their order; each once if `is_once`.
fn handled(log: &Log, is_once: bool) -> BTreeMap<u64, Vec<u64>> {
    let mut handled = BTreeMap::<u64, Vec<u64>>::new();
    for entry in log.entries() {
        let of_key = handled.entry(entry.key).or_default();
        if entry.what == What::End(true) && (is_once || !of_key.contains(&entry.id)) {
            of_key.push(entry.id);
        }
    }
    handled.retain(|_, ids| !ids.is_empty());
    handled
}

fn in_order(last: u64) -> BTreeMap<u64, Vec<u64>> {
    let ids = |key| (1..=last).filter(|id| id % KEYS == key).collect();
    (0..KEYS).map(|key| (key, ids(key))).collect()
}

/// With the default settings of a bouncer: it is not told to ignore a parameter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_session_for_each_client_a_source_handles_all_in_order() {
    // What is accepted is notified: to ask for it takes too long for this test.
    handles_all(Pooling::Session, PATIENCE * 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bouncer_that_tracks_statements_may_share_sessions() {
    if Bouncer::tracks_statements().unwrap() {
        handles_all(Pooling::Tracked, Duration::from_millis(250)).await;
    } else {
        println!("not run: this PgBouncer is older than 1.21");
    }
}

async fn handles_all(pooling: Pooling, poll: Duration) {
    const MESSAGES: u64 = 200;
    let (_server, bouncer, place) = start(pooling).await;
    let address = place.address_by(bouncer.port());
    let log = Log::default();
    let mut work = Work::new();
    work.source = work.source.poll(poll);
    let workers = [
        Worker::start(&address, 0, &log, work.clone()).await,
        Worker::start(&address, 1, &log, work).await,
    ];
    let inbox = workers[0].inbox.inbox();
    for id in 1..=MESSAGES {
        inbox.accept_message(message(id % KEYS, id)).await.unwrap();
    }
    until(|| log.succeeded() as u64 >= MESSAGES).await;
    place.is_empty_within(PATIENCE).await;
    for worker in &workers {
        let stats = worker.stats();
        assert_eq!((stats.restarts, stats.last_error), (0, None));
        worker.stop().await;
    }
    assert_eq!(handled(&log, true), in_order(MESSAGES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bouncer_that_is_killed_loses_nothing() {
    const MESSAGES: u64 = 90;
    let (_server, bouncer, place) = start(Pooling::Session).await;
    let address = place.address_by(bouncer.port());
    let log = Log::default();
    let worker = Worker::start(&address, 0, &log, Work::new()).await;
    let inbox = worker.inbox.inbox();
    for id in 1..=MESSAGES {
        if id % 30 == 0 {
            bouncer.kill().await.unwrap();
            let message = message(id % KEYS, id);
            inbox.accept_message(message).await.unwrap_err();
            bouncer.start_again().await.unwrap();
        }
        until_async("the bouncer is there again", async || {
            let accepted = inbox.accept_message(message(id % KEYS, id)).await;
            accepted.is_ok()
        })
        .await;
    }
    until(|| log.handled().len() as u64 == MESSAGES).await;
    place.is_empty_within(PATIENCE).await;
    worker.stop().await;
    assert_eq!(handled(&log, false), in_order(MESSAGES));
}

#[tokio::test]
async fn with_a_session_for_each_client_leases_exclude() {
    let (_server, bouncer, place) = start(Pooling::Session).await;
    let address = place.address_by(bouncer.port());
    let leases = async || {
        let database = Database::connect(&address).await.unwrap();
        let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
        Leases::open(std::sync::Arc::new(store)).unwrap()
    };
    let (here, there) = (leases().await, leases().await);
    let first = here.acquire("key", PATIENCE).await.unwrap();
    let taken = there.try_acquire("key", PATIENCE).await;
    assert!(
        matches!(taken, Err(AcquireError::Taken { .. })),
        "{taken:?}"
    );
    let token = first.token();
    first.release().await;
    let next = there.acquire("key", PATIENCE).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn with_a_session_for_each_transaction_nothing_is_opened() {
    let (_server, bouncer, place) = start(Pooling::Transaction).await;
    let address = place.address_by(bouncer.port());
    let own = PgConnectOptions::from_str(&address).unwrap();
    let own = own.extra_float_digits(None);
    // Without names of statements it is no better.
    let unnamed = own.clone().statement_cache_capacity(0);
    let own = PgPoolOptions::new().connect_with(own).await.unwrap();
    let unnamed = PgPoolOptions::new().connect_with(unnamed).await.unwrap();
    for database in [
        Database::connect(&address).await.unwrap(),
        Database::postgres(own),
        Database::postgres(unnamed),
    ] {
        is_refused(&database).await;
    }
    let accepted = place.number("select count(*) from keylane_messages").await;
    assert_eq!(accepted, 0);
}

/// The sessions go from client to client all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_bouncer_is_found_out_too() {
    let (_server, bouncer, place) = start(Pooling::Transaction).await;
    let address = place.address_by(bouncer.port());
    let options = PgConnectOptions::from_str(&address).unwrap();
    let options = options.extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(8);
    let pool = pool.connect_with(options).await.unwrap();
    let mut others = JoinSet::new();
    for _ in 0..8 {
        let pool = pool.clone();
        others.spawn(async move {
            loop {
                let sleep = sqlx::raw_sql("select pg_sleep(0.001)");
                sleep.execute(&pool).await.unwrap();
            }
        });
    }
    for _ in 0..20 {
        is_refused(&Database::connect(&address).await.unwrap()).await;
    }
}

/// How long a pooler is asked: if it has not answered then, nothing is known of it.
const ASKED_FOR: Duration = Duration::from_secs(5);

async fn is_refused(database: &Database) {
    let tables = Tables::new();
    let opened = [
        timed(database.migrate(&tables)).await,
        timed(SqlLeases::open(database, &tables)).await,
        timed(SqlInbox::open(database, &tables, Settings::new())).await,
    ];
    for (refused, took) in opened {
        let Some(refused) = refused else {
            assert!(took >= ASKED_FOR, "it is opened after {took:?}");
            continue;
        };
        assert!(matches!(refused, OpenError::SharedSessions), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("pool_mode = session"), "{text}");
    }
}

/// The error, and how long it took.
async fn timed<T>(
    opens: impl Future<Output = Result<T, OpenError>>,
) -> (Option<OpenError>, Duration) {
    let began = Instant::now();
    (opens.await.err(), began.elapsed())
}
