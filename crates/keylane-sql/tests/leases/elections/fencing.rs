//! Transactions of leaders whose terms are over.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::store::{History, Recorded, Stage};
use keylane_leases::Token;
use keylane_sql::error::FenceError;
use keylane_sql::sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, raw_sql,
};
use keylane_testkit::scenario::until_async;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Scene;
use crate::support::{Kind, Place, stale};

/// A transaction of a leader, for a row of a table with one row for each write.
enum Transaction {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Transaction {
    async fn begin(place: &Place) -> Self {
        let mut transaction = match place.kind {
            Kind::Postgres => Self::Postgres(PgConnection::connect(&place.address).await.unwrap()),
            Kind::MariaDb => Self::MySql(MySqlConnection::connect(&place.address).await.unwrap()),
        };
        transaction.execute("begin").await;
        transaction
    }

    /// Returns how many rows are affected.
    async fn execute(&mut self, statement: &str) -> u64 {
        let statement = raw_sql(AssertSqlSafe(statement.to_owned()));
        match self {
            Self::Postgres(of) => of.execute(statement).await.unwrap().rows_affected(),
            Self::MySql(of) => of.execute(statement).await.unwrap().rows_affected(),
        }
    }

    async fn fence(&mut self, scene: &Scene, token: u64, of: &History) -> Result<(), FenceError> {
        let (store, key, token) = (&scene.store, &scene.key, Token(token));
        match self {
            Self::Postgres(transaction) => store.fence(transaction, key, token, of).await,
            Self::MySql(transaction) => store.fence(transaction, key, token, of).await,
        }
    }

    async fn write(&mut self, token: u64) {
        let write = format!("insert into writes (id, token) values (1, {token})");
        self.execute(&write).await;
    }

    /// Writes if the term is the last one: the form without a call.
    async fn write_if_last(&mut self, token: u64, history: &History) -> u64 {
        let id = match self {
            Self::Postgres(_) => "sha256('fenced')",
            Self::MySql(_) => "unhex(sha2('fenced', 256))",
        };
        let lock = match self {
            Self::Postgres(_) => "for share",
            Self::MySql(_) => "lock in share mode",
        };
        let write = format!(
            "update sink set token = {token} where id = 1 and exists (
                select 1 from keylane_terms
                where id = {id} and token = {token} and history = '{history}' and stage < 2 {lock}
             )"
        );
        self.execute(&write).await
    }
}

async fn scene(kind: Kind) -> (Place, Scene) {
    let place = Place::new(kind).await;
    let number = match kind {
        Kind::Postgres => "bigserial",
        Kind::MariaDb => "bigint auto_increment",
    };
    let writes = format!(
        "create table writes (n {number} primary key, id bigint not null, token bigint not null)"
    );
    place.execute(writes).await;
    place
        .execute("create table sink (id bigint primary key, token bigint not null)")
        .await;
    place
        .execute("insert into sink (id, token) values (1, 0)")
        .await;
    let scene = Scene::new(&place, "fenced").await;
    (place, scene)
}

#[tokio::test]
async fn postgres_refuses_an_older_term() {
    refuses_an_older_term(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_refuses_an_older_term() {
    refuses_an_older_term(Kind::MariaDb).await;
}

async fn refuses_an_older_term(kind: Kind) {
    let (place, scene) = scene(kind).await;
    let (history, other) = (scene.history().await, History::new("another"));
    let judge = async |token: u64, history: &History| {
        let mut transaction = Transaction::begin(&place).await;
        let fenced = transaction.fence(&scene, token, history).await;
        let written = transaction.write_if_last(token, history).await;
        assert_eq!(fenced.is_ok(), written == 1, "{fenced:?}");
        match fenced {
            Ok(()) => Ok(()),
            Err(FenceError::Fenced { last, .. }) => Err(last.map(|last| last.0)),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(judge(5, &history).await, Err(None), "there was no term");
    scene.record(5, "a", Stage::Began).await;
    assert_eq!(judge(5, &history).await, Ok(()));
    assert_eq!(judge(5, &other).await, Err(Some(5)));
    assert_eq!(judge(4, &history).await, Err(Some(5)));
    assert_eq!(judge(6, &history).await, Err(Some(5)), "it is not recorded");
    scene.record(5, "a", Stage::Leaving).await;
    assert_eq!(judge(5, &history).await, Ok(()));
    scene.record(5, "a", Stage::Ended).await;
    assert_eq!(judge(5, &history).await, Err(Some(5)), "it has ended");
    scene.record(6, "b", Stage::Began).await;
    assert_eq!(judge(5, &history).await, Err(Some(6)));
    assert_eq!(judge(6, &history).await, Ok(()));
    let mut transaction = Transaction::begin(&place).await;
    let refused = transaction.fence(&scene, 5, &history).await.unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("roll the transaction back"), "{said}");
}

#[tokio::test]
async fn a_successor_waits_for_a_fenced_transaction_in_postgres() {
    a_successor_waits(Kind::Postgres).await;
}

#[tokio::test]
async fn a_successor_waits_for_a_fenced_transaction_in_mariadb() {
    a_successor_waits(Kind::MariaDb).await;
}

async fn a_successor_waits(kind: Kind) {
    let (place, scene) = scene(kind).await;
    let history = scene.history().await;
    for by_statement in [false, true] {
        let token = 2 * u64::from(by_statement) + 1;
        scene.record(token, "a", Stage::Began).await;
        let mut transaction = Transaction::begin(&place).await;
        if by_statement {
            assert_eq!(transaction.write_if_last(token, &history).await, 1);
        } else {
            transaction.fence(&scene, token, &history).await.unwrap();
            // Others of the same term do not wait.
            let mut other = Transaction::begin(&place).await;
            other.fence(&scene, token, &history).await.unwrap();
            other.execute("commit").await;
        }
        let successor = scene.clone();
        let recorded =
            tokio::spawn(async move { successor.record(token + 1, "b", Stage::Began).await });
        until_async("the record waits for the row, or is written", async || {
            recorded.is_finished() || waits_for_a_row(&place).await
        })
        .await;
        assert!(!recorded.is_finished(), "it did not wait");
        transaction.write(token).await;
        transaction.execute("commit").await;
        assert!(matches!(
            recorded.await.unwrap(),
            Recorded::Written(Some(_))
        ));
    }
}

async fn waits_for_a_row(place: &Place) -> bool {
    let query = match place.kind {
        Kind::Postgres => {
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'"
        }
        Kind::MariaDb => {
            // InnoDB shows an old list to those who read it more often.
            sleep(Duration::from_millis(150)).await;
            "select count(*) from information_schema.innodb_trx
             join information_schema.processlist p on p.id = trx_mysql_thread_id
             where p.db = database() and trx_state = 'LOCK WAIT'"
        }
    };
    place.number(query).await > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_refuses_what_earlier_leaders_write() {
    assert_eq!(leaders_that_go_on(Kind::Postgres, true).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_refuses_what_earlier_leaders_write() {
    assert_eq!(leaders_that_go_on(Kind::MariaDb, true).await, 0);
}

/// The twin without a fence: the same leaders, and stale writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_fence_earlier_leaders_overwrite() {
    assert!(leaders_that_go_on(Kind::Postgres, false).await > 0);
    assert!(leaders_that_go_on(Kind::MariaDb, false).await > 0);
}

/// Leaders that do not know that another one has begun. Returns how many writes are stale.
async fn leaders_that_go_on(kind: Kind, is_fenced: bool) -> usize {
    const TERMS: u64 = 15;
    const EACH: usize = 10;
    let (place, scene) = scene(kind).await;
    let (place, history) = (Arc::new(place), scene.history().await);
    let mut leaders = Vec::new();
    for token in 1..=TERMS {
        scene.record(token, "a", Stage::Began).await;
        let (wrote, mut writes) = mpsc::unbounded_channel();
        let (place, scene, history) = (place.clone(), scene.clone(), history.clone());
        leaders.push(tokio::spawn(async move {
            for written in 0..EACH {
                let mut transaction = Transaction::begin(&place).await;
                if is_fenced && transaction.fence(&scene, token, &history).await.is_err() {
                    assert!(token < TERMS, "the last one is fenced");
                    return written;
                }
                // Between the check and the write another term may begin.
                sleep(Duration::from_millis(token % 4 * 2)).await;
                transaction.write(token).await;
                transaction.execute("commit").await;
                let _ = wrote.send(());
            }
            EACH
        }));
        // The next term begins while this one writes.
        for _ in 0..2 {
            writes.recv().await.unwrap();
        }
    }
    let mut written = 0;
    for leader in leaders {
        written += leader.await.unwrap();
    }
    let writes = place.pairs("select id, token from writes order by n").await;
    assert_eq!(writes.len(), written);
    let stale = stale(writes.iter().copied());
    println!("{kind:?}: {written} writes, {stale} of them stale, fenced: {is_fenced}");
    stale
}
