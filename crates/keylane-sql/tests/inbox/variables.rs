//! Variables that an operator has set for all sessions of a server.

use std::time::Duration;

use keylane_leases::store::{Answer, LeaseStore, Owner, Wish};
use keylane_sql::error::OpenError;
use keylane_sql::{Database, Settings, SqlInbox, SqlLeases, Tables, sqlx};
use keylane_testkit::Lines;
use keylane_testkit::scenario::until_async;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Executor, MySqlPool};
use testkit_servers::MariaDb;

use crate::rig::{Log, Own, Work, Worker, log_to, message, until};
use crate::support::{Kind, Place};

const SOON: Duration = Duration::from_secs(60);

/// With each of these alone keylane loses something, or stops.
const HARMFUL: [(&str, &str); 5] = [
    ("autocommit", "0"),
    ("completion_type", "'CHAIN'"),
    ("sql_safe_updates", "1"),
    ("sql_select_limit", "1"),
    ("sql_mode", "''"),
];

async fn set_for_all(place: &Place, variable: &str, value: &str) {
    let statement = format!("set global {variable} = {value}");
    place.execute(statement).await;
}

/// The tables are made, messages are accepted, handled and removed, and leases are granted.
async fn works(place: &Place) {
    let database = Database::connect(&place.address).await.unwrap();
    database.migrate(&Tables::new()).await.unwrap();
    let log = Log::default();
    let worker = Worker::start(&place.address, 0, &log, Work::new()).await;
    for id in 1..=20 {
        let mut one = message(id % 4, id);
        // With an id it is a transaction, and one statement without.
        if id % 2 == 0 {
            one.id = None;
        }
        worker.inbox.inbox().accept_message(one).await.unwrap();
    }
    until(SOON, || log.handled().len() == 20).await;
    worker.stop().await;
    assert_eq!(worker.inbox.inbox().stats().await.unwrap().waiting, 0);
    assert_eq!(worker.stats().restarts, 0, "{:?}", worker.stats());
    let leases = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let wishes = ["a", "b", "c"].map(|key| Wish::new(key, SOON));
    let answers = leases.acquire(&Owner::random(), &wishes).await.unwrap();
    assert_eq!(answers.len(), 3);
    let is_granted = |answer: &Answer| matches!(answer, Answer::Granted(_));
    assert!(answers.iter().all(is_granted), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_works_whatever_all_sessions_are_set_to() {
    let server = Own::start(Kind::MariaDb).await;
    let place = server.place().await;
    for (variable, value) in HARMFUL {
        set_for_all(&place, variable, value).await;
    }
    set_for_all(&place, "tx_isolation", "'SERIALIZABLE'").await;
    set_for_all(&place, "time_zone", "'+05:00'").await;
    works(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_works_whatever_all_sessions_are_set_to() {
    let server = Own::start(Kind::Postgres).await;
    let place = server.place().await;
    let (_, database) = place.address.rsplit_once('/').unwrap();
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "timezone = 'Asia/Kathmandu'",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
    ] {
        place
            .execute(format!("alter database {database} set {setting}"))
            .await;
    }
    works(&place).await;
}

/// The pool is the user's own, and its sessions are as the server makes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_with_a_harmful_variable_is_refused_by_its_name() {
    let server = Own::start(Kind::MariaDb).await;
    let place = server.place().await.migrated().await;
    for (variable, value) in HARMFUL {
        let set = format!("set {variable} = {value}");
        let options = MySqlPoolOptions::new().after_connect(move |session, _| {
            let set = sqlx::AssertSqlSafe(set.clone());
            Box::pin(async move { session.execute(set).await.map(drop) })
        });
        let pool = options.connect(&place.address).await.unwrap();
        let database = Database::mysql(pool.clone());
        let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
        refused(variable, inbox.map(drop));
        let leases = SqlLeases::open(&database, &Tables::new()).await;
        refused(variable, leases.map(drop));
        let others = Tables::new().prefix("others").unwrap();
        refused(variable, database.migrate(&others).await);
        pool.close().await;
    }
    let pool = MySqlPool::connect(&place.address).await.unwrap();
    let inbox = SqlInbox::open(&Database::mysql(pool), &Tables::new(), Settings::new()).await;
    inbox.unwrap();
}

fn refused(variable: &str, opened: Result<(), OpenError>) {
    let error = opened.unwrap_err();
    let OpenError::Setting(setting) = &error else {
        panic!("{variable}: {error}");
    };
    assert_eq!(setting.variable(), variable);
    assert!(error.to_string().contains(variable), "{error}");
}

/// The settings with which a crash loses data.
const LOSSY: [(Kind, &str, &str); 2] = [
    (Kind::Postgres, "synchronous_commit", "off"),
    (Kind::MariaDb, "innodb_flush_log_at_trx_commit", "2"),
];

async fn set_lossy(place: &Place, setting: &str, value: &str) {
    let (_, name) = place.address.rsplit_once('/').unwrap();
    let set = match place.kind {
        Kind::Postgres => format!("alter database {name} set {setting} = {value}"),
        Kind::MariaDb => format!("set global {setting} = {value}"),
    };
    place.execute(set).await;
}

/// On one thread, so that all of it is logged to `Lines`.
#[tokio::test]
async fn settings_with_which_a_crash_loses_data_are_in_the_log() {
    for (kind, setting, value) in LOSSY {
        let server = Own::start(kind).await;
        let place = server.place().await.migrated().await;
        set_lossy(&place, setting, value).await;
        let lines = Lines::new();
        let logs = log_to(&lines);
        let database = Database::connect(&place.address).await.unwrap();
        let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
        inbox.unwrap();
        drop(logs);
        let text = lines.with(setting).concat();
        assert!(text.contains("WARN"), "{:?}", lines.all());
        assert!(
            !text.contains("secret") && text.contains("set it to"),
            "{text}"
        );
    }
}

/// The sessions end, and those that come after them find it.
#[tokio::test]
async fn a_setting_that_is_changed_while_a_source_runs_is_in_the_log() {
    for (kind, setting, value) in LOSSY {
        let server = Own::start(kind).await;
        let place = server.place().await.migrated().await;
        let lines = Lines::new();
        let logs = log_to(&lines);
        let worker = Worker::start(&place.address, 0, &Log::default(), Work::new()).await;
        set_lossy(&place, setting, value).await;
        assert!(lines.with(setting).is_empty());
        until_async("it is in the log", async || {
            place.kill_connections().await;
            !lines.with(setting).is_empty()
        })
        .await;
        worker.stop().await;
        drop(logs);
        let said = lines.with(setting);
        assert!(said.len() == 1 && said[0].contains("WARN"), "{said:#?}");
    }
}

/// Replicas need a binary log, and the server takes back what that has not when it recovers.
#[tokio::test]
async fn a_binary_log_that_is_not_synced_is_in_the_log() {
    let server = MariaDb::start_primary().await.unwrap();
    let place = Place::at(Kind::MariaDb, server.create_database().await.unwrap()).await;
    let lines = Lines::new();
    let logs = log_to(&lines);
    let place = place.migrated().await;
    place.inbox().await;
    drop(logs);
    let said = lines.with("sync_binlog");
    assert!(said.len() == 1 && said[0].contains("WARN"), "{said:#?}");
}
