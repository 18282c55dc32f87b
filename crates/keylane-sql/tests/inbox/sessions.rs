//! Sessions that have become useless, and what the database gives up: both are over with the next call.

use std::time::Duration;

use keylane::source::{Deliveries, Source};
use keylane_inbox::error::AcceptError;
use keylane_leases::store::{LeaseStore, Owner, Wish};
use keylane_sql::error::{CommitError, ErrorKind, SqlError};
use keylane_sql::{
    Claim, Committed, Database, Settings, SourceSettings, SqlInbox, SqlLeases, Tables, sqlx,
};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, PgConnection, PgPool};
use tokio::time::{Instant, sleep};

use crate::rig::{Log, Own, Work, Worker, message, until};
use crate::support::{Kind, Place};

const SOON: Duration = Duration::from_secs(60);

/// As many connections as a pool has.
const POOL: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_that_was_read_only_is_written_to_again() {
    read_only(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_that_was_read_only_is_written_to_again() {
    read_only(Kind::MariaDb).await;
}

/// Whether sessions that begin from now on can only read.
pub(crate) async fn set_read_only(place: &Place, is_read_only: bool) {
    let value = if is_read_only { "on" } else { "off" };
    let statement = match place.kind {
        Kind::Postgres => {
            let (_, database) = place.address.rsplit_once('/').unwrap();
            // Of the session that says it as well.
            format!(
                "begin read write; alter database {database} set default_transaction_read_only = {value}; commit"
            )
        }
        Kind::MariaDb => format!("set global tx_read_only = {value}"),
    };
    place.execute(statement).await;
}

async fn inbox_of(address: &str) -> SqlInbox {
    let database = Database::connect(address).await.unwrap();
    let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
    inbox.unwrap()
}

/// A pool is filled with sessions that can only read.
async fn read_only(kind: Kind) {
    let server = Own::start(kind).await;
    let place = server.place().await.migrated().await;
    set_read_only(&place, true).await;
    let log = Log::default();
    let worker = Worker::start(&place.address, 0, &log, Work::new()).await;
    let sessions = Sessions::of(&place).await;
    let (database, inbox) = sessions.inbox().await;
    let leases = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let (owner, wish) = (Owner::random(), Wish::new("key", SOON));
    let refused = inbox.remove_old().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    assert!(refused.is_retryable());
    let mut tries = Vec::new();
    for id in 1..=POOL as u64 {
        let inbox = inbox.inbox();
        // With an id it is a transaction, and one statement without.
        let mut one = message(id, id);
        if id % 2 == 0 {
            one.id = None;
        }
        tries.push(tokio::spawn(async move { inbox.accept_message(one).await }));
    }
    for tried in tries {
        let Err(AcceptError::Store(error, _)) = tried.await.unwrap() else {
            panic!("it can only read");
        };
        assert!(!error.may_be_stored(), "nothing was done: {error}");
    }
    leases
        .acquire(&owner, std::slice::from_ref(&wish))
        .await
        .unwrap_err();
    sessions.fill().await;
    set_read_only(&place, false).await;

    // Each of those that were begun before costs one call at most, and lets go of the others.
    let mut refused = 0;
    let until_accepted = Instant::now() + SOON;
    while let Err(error) = inbox
        .inbox()
        .accept("1", 1_u64.to_be_bytes().to_vec())
        .await
    {
        refused += 1;
        assert!(
            refused <= POOL && Instant::now() < until_accepted,
            "{error}"
        );
    }
    println!("{kind:?}: {refused} accepts were refused after it was well again");
    let granted = leases.acquire(&owner, &[wish]).await;
    granted.expect("the sessions of the pool are new");
    until(SOON, || log.handled().contains(&1)).await;
    worker.stop().await;
}

/// The sessions of an inbox.
enum Sessions {
    Postgres(PgPool),
    MariaDb(MySqlPool),
}

impl Sessions {
    async fn of(place: &Place) -> Self {
        let address = &place.address;
        match place.kind {
            Kind::Postgres => Self::Postgres(PgPool::connect(address).await.unwrap()),
            Kind::MariaDb => Self::MariaDb(MySqlPool::connect(address).await.unwrap()),
        }
    }

    async fn inbox(&self) -> (Database, SqlInbox) {
        let database = match self {
            Self::Postgres(pool) => Database::postgres(pool.clone()),
            Self::MariaDb(pool) => Database::mysql(pool.clone()),
        };
        let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
        (database, inbox.unwrap())
    }

    /// There are as many as there can be, and none of them is in use.
    async fn fill(&self) {
        match self {
            Self::Postgres(pool) => fill(pool).await,
            Self::MariaDb(pool) => fill(pool).await,
        }
    }
}

async fn fill<DB: sqlx::Database>(pool: &sqlx::Pool<DB>) {
    let mut lent = Vec::new();
    for _ in 0..POOL {
        lent.push(pool.acquire().await.unwrap());
    }
    drop(lent);
    // They go back to the pool in tasks of their own.
    until(SOON, || pool.num_idle() == POOL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_postgres_have_no_session_that_can_only_read() {
    begins(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_mariadb_have_no_session_that_can_only_read() {
    begins(Kind::MariaDb).await;
}

async fn begins(kind: Kind) {
    let server = Own::start(kind).await;
    let place = server.place().await.migrated().await;
    let claim = claimed(&place).await;
    set_read_only(&place, true).await;
    let sessions = Sessions::of(&place).await;
    let (_, stale) = sessions.inbox().await;
    sessions.fill().await;
    set_read_only(&place, false).await;
    let mut refused = 0;
    let transaction = loop {
        match stale.begin(claim.1).await {
            Ok(transaction) => break transaction,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
                refused += 1;
                assert!(refused < 3, "the idle ones are closed with it");
            }
        }
    };
    assert_eq!(transaction.commit().await.unwrap(), Committed::Now);
}

/// A message that is handed over, and the source that has it.
async fn claimed(place: &Place) -> (impl Source + use<>, Claim) {
    let inbox = place.inbox().await;
    inbox.inbox().accept("key", "payload").await.unwrap();
    let mut source = inbox.source_with(SourceSettings::new().lease(SOON));
    source.open().await.unwrap();
    loop {
        let mut into = Deliveries::new(1, Instant::now() + Duration::from_secs(1));
        source.receive(&mut into).await.unwrap();
        if let Some(delivery) = into.take().pop() {
            let claim = Claim::of(&delivery.message).unwrap();
            return (source, claim);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_postgres_gives_up_is_tried_again() {
    let place = Place::new(Kind::Postgres).await;
    let (_, database) = place.address.rsplit_once('/').unwrap();
    let mut connection = PgConnection::connect(&place.address).await.unwrap();
    let lock = "begin; lock table keylane_known in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    for setting in ["statement_timeout", "lock_timeout"] {
        place
            .execute(format!("alter database {database} set {setting} = '100ms'"))
            .await;
        let inbox = inbox_of(&place.address).await;
        is_given_up(&inbox.remove_old().await.unwrap_err());
        place
            .execute(format!("alter database {database} reset {setting}"))
            .await;
    }
    sqlx::raw_sql("rollback")
        .execute(&mut connection)
        .await
        .unwrap();

    let setting = "idle_in_transaction_session_timeout = '100ms'";
    place
        .execute(format!("alter database {database} set {setting}"))
        .await;
    let (_source, claim) = claimed(&place).await;
    let inbox = inbox_of(&place.address).await;
    let transaction = inbox.begin(claim).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let Err(CommitError::Sql(error)) = transaction.commit().await else {
        panic!("its session has ended");
    };
    is_given_up(&error);
    let again = inbox.begin(claim).await.unwrap();
    assert_eq!(again.commit().await.unwrap(), Committed::Now);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_mariadb_gives_up_is_tried_again() {
    let server = Own::start(Kind::MariaDb).await;
    let place = server.place().await.migrated().await;
    let mut connection = MySqlConnection::connect(&place.address).await.unwrap();
    let lock = "lock tables keylane_known write";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    for setting in ["lock_wait_timeout", "max_statement_time"] {
        let before = format!("select cast(@@global.{setting} as signed)");
        let before = place.number(&before).await;
        place.execute(format!("set global {setting} = 1")).await;
        let inbox = inbox_of(&place.address).await;
        is_given_up(&inbox.remove_old().await.unwrap_err());
        place
            .execute(format!("set global {setting} = {before}"))
            .await;
    }
    sqlx::raw_sql(AssertSqlSafe("unlock tables"))
        .execute(&mut connection)
        .await
        .unwrap();
    place.inbox().await.remove_old().await.unwrap();
}

fn is_given_up(error: &SqlError) {
    assert_eq!(error.kind(), ErrorKind::Unable, "{error}");
    assert!(error.is_retryable());
}
