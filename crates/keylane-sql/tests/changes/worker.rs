//! A worker that leads, and what it writes.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Term;
use keylane_sql::error::FenceError;
use keylane_sql::{Database, SqlElections, Tables, sqlx};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{MySqlPool, PgPool};
use testkit_processes::elections::{Answer, Candidacy, Sink, Write};

/// How long a worker waits for a connection.
const CONNECT: Duration = Duration::from_secs(1);

/// In the server: how long a transaction may be idle, in milliseconds. Its fence locks the row of
/// the term, so a successor waits for the transaction of a worker that is paused or cut off.
const IDLE: &str = "300";

enum Pool {
    Postgres(PgPool),
    MariaDb(MySqlPool),
}

impl Pool {
    async fn connect(address: &str) -> Self {
        if address.starts_with("postgres") {
            let options: PgConnectOptions = address.parse().unwrap();
            let options = options.options([("idle_in_transaction_session_timeout", IDLE)]);
            let pool = PgPoolOptions::new().acquire_timeout(CONNECT);
            // A question before each write would keep the writes of a cut-off worker from waiting
            // in the network.
            let pool = pool.test_before_acquire(false);
            return Self::Postgres(pool.connect_with(options).await.unwrap());
        }
        let pool = MySqlPoolOptions::new().acquire_timeout(CONNECT);
        let pool = pool.test_before_acquire(false);
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                // In seconds.
                let limit = "set session idle_transaction_timeout = 1";
                sqlx::query(limit).execute(connection).await.map(drop)
            })
        });
        Self::MariaDb(pool.connect(address).await.unwrap())
    }
}

struct Rows {
    elections: Arc<SqlElections>,
    pool: Pool,
}

/// Writes in a transaction that begins with the fence.
macro_rules! fenced {
    ($rows:expr, $pool:expr, $term:expr, $write:expr, $insert:literal) => {{
        let mut transaction = $pool.begin().await.map_err(|_| Answer::Unknown)?;
        let (key, token, history) = ($term.key(), $term.token(), $term.history());
        let fence = $rows
            .elections
            .fence(&mut *transaction, key, token, history);
        fence.await.map_err(|error| match error {
            FenceError::Fenced { .. } => Answer::Refused,
            _ => Answer::Unknown,
        })?;
        let insert = sqlx::query($insert);
        let insert = insert.bind($write.token as i64).bind($write.number as i64);
        let inserted = insert.execute(&mut *transaction).await;
        inserted.map_err(|_| Answer::Unknown)?;
        transaction.commit().await.map_err(|_| Answer::Unknown)
    }};
}

impl Rows {
    async fn write(&self, term: &Term, write: Write) -> Result<(), Answer> {
        match &self.pool {
            Pool::Postgres(pool) => fenced!(
                self,
                pool,
                term,
                write,
                "insert into fenced (token, number) values ($1, $2)"
            ),
            Pool::MariaDb(pool) => fenced!(
                self,
                pool,
                term,
                write,
                "insert into fenced (token, number) values (?, ?)"
            ),
        }
    }
}

impl Sink for Rows {
    async fn fenced(&self, term: &Term, write: Write) -> Answer {
        let written = self.write(term, write).await;
        written.map_or_else(|answer| answer, |()| Answer::Accepted)
    }

    async fn plain(&self, write: Write) {
        let (token, number) = (write.token as i64, write.number as i64);
        // The server may be away.
        match &self.pool {
            Pool::Postgres(pool) => {
                let insert = sqlx::query("insert into plain (token, number) values ($1, $2)");
                let _ = insert.bind(token).bind(number).execute(pool).await;
            }
            Pool::MariaDb(pool) => {
                let insert = sqlx::query("insert into plain (token, number) values (?, ?)");
                let _ = insert.bind(token).bind(number).execute(pool).await;
            }
        }
    }
}

/// The worker: this program again.
#[test]
fn worker() {
    let Some(candidacy) = Candidacy::assigned() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let database = Database::connect(candidacy.address()).await.unwrap();
        let elections = SqlElections::open(&database, &Tables::new()).await;
        let elections = Arc::new(elections.unwrap());
        let sink = Rows {
            elections: Arc::clone(&elections),
            pool: Pool::connect(candidacy.address()).await,
        };
        candidacy.run(elections, sink).await;
    });
}
