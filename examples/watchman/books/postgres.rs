//! Books in tables.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use keylane_leader::Term;
use keylane_sql::error::FenceError;
use keylane_sql::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use keylane_sql::sqlx::{self, PgConnection, PgPool};
use keylane_sql::{Database, SqlElections};

use crate::Failure;
use crate::judge::Entry;
use crate::words::{Bill, Written};

/// A process that is paused in the middle of a transaction keeps the row of the term locked, and
/// its successor waits for it. So the server ends a transaction in which nothing is said for as
/// long.
const IDLE: &str = "1s";

/// For bills; the elections take two more.
const CONNECTIONS: u32 = 12;

/// `bills` has no unique key: what is billed twice is to be seen.
const TABLES: [&str; 2] = [
    "create table accounts (id integer primary key, billed integer not null)",
    "create table bills (
        place bigserial primary key,
        account integer not null,
        period integer not null,
        token bigint not null,
        leader text not null
    )",
];

pub(crate) struct Tables {
    pool: PgPool,
    pub(super) elections: Arc<SqlElections>,
}

async fn connect(url: &str) -> Result<PgPool, Failure> {
    let options = PgConnectOptions::from_str(url)?.options([
        ("idle_in_transaction_session_timeout", IDLE),
        ("client_min_messages", "warning"),
    ]);
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
    let pool = pool.acquire_timeout(Duration::from_secs(10));
    Ok(pool.connect_with(options).await?)
}

pub(super) async fn create(url: &str, accounts: u32) -> Result<(), Failure> {
    let pool = connect(url).await?;
    let tables = keylane_sql::Tables::new();
    Database::postgres(pool.clone()).migrate(&tables).await?;
    for table in TABLES {
        sqlx::query(table).execute(&pool).await?;
    }
    let opened = "insert into accounts select id, 0 from generate_series(0, $1 - 1) as id";
    let opened = sqlx::query(opened).bind(accounts.cast_signed());
    opened.execute(&pool).await?;
    pool.close().await;
    Ok(())
}

impl Tables {
    pub(super) async fn open(url: &str) -> Result<Self, Failure> {
        let pool = connect(url).await?;
        let database = Database::postgres(pool.clone());
        let elections = SqlElections::open(&database, &keylane_sql::Tables::new()).await?;
        let elections = Arc::new(elections);
        Ok(Self { pool, elections })
    }

    pub(super) async fn billed(&self) -> Result<Vec<u32>, Failure> {
        let billed = "select billed from accounts order by id";
        let billed: Vec<i32> = sqlx::query_scalar(billed).fetch_all(&self.pool).await?;
        Ok(billed.into_iter().map(i32::cast_unsigned).collect())
    }

    /// The fence, the period and the bill are one transaction.
    pub(super) async fn write(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (key, token, history) = (term.key(), term.token(), term.history());
        let fenced = self.elections.fence(&mut *transaction, key, token, history);
        match fenced.await {
            Ok(()) => {}
            Err(FenceError::Fenced { .. }) => return Ok(Written::Refused),
            Err(error) => return Err(error.into()),
        }
        let next = "update accounts set billed = $2 where id = $1 and billed = $2 - 1";
        let next = sqlx::query(next).bind(bill.account.cast_signed());
        let next = next.bind(bill.period.cast_signed());
        if next.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(Written::Earlier);
        }
        insert(&mut transaction, term, leader, bill).await?;
        transaction.commit().await?;
        Ok(Written::Billed)
    }

    pub(super) async fn write_unfenced(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        let mut transaction = self.pool.begin().await?;
        let billed = "update accounts set billed = greatest(billed, $2) where id = $1";
        let billed = sqlx::query(billed).bind(bill.account.cast_signed());
        let billed = billed.bind(bill.period.cast_signed());
        billed.execute(&mut *transaction).await?;
        insert(&mut transaction, term, leader, bill).await?;
        transaction.commit().await?;
        Ok(Written::Billed)
    }

    pub(super) async fn bills(&self) -> Result<Vec<Entry>, Failure> {
        let bills = "select account, period, token, leader from bills order by place";
        let bills: Vec<(i32, i32, i64, String)> =
            sqlx::query_as(bills).fetch_all(&self.pool).await?;
        let entries = bills
            .into_iter()
            .map(|(account, period, token, leader)| Entry {
                bill: Bill {
                    account: account.cast_unsigned(),
                    period: period.cast_unsigned(),
                },
                token: token.cast_unsigned(),
                leader,
            });
        Ok(entries.collect())
    }
}

async fn insert(
    connection: &mut PgConnection,
    term: &Term,
    leader: &str,
    bill: Bill,
) -> Result<(), Failure> {
    let written = "insert into bills (account, period, token, leader) values ($1, $2, $3, $4)";
    let written = sqlx::query(written)
        .bind(bill.account.cast_signed())
        .bind(bill.period.cast_signed())
        .bind(term.token().0.cast_signed())
        .bind(leader);
    written.execute(connection).await?;
    Ok(())
}
