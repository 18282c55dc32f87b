//! Leases in a table: one row for each key.
//!
//! The key itself may have any length, so rows are found by its SHA-256. A row stays when its lease
//! ends, and is removed a day later: see [`SqlLeases::remove_old`].
//!
//! One counter gives the tokens of all keys, and a token is drawn while its row is locked. So the
//! tokens of a key grow in the order of its grants, even if its row was removed in between.

// # How it works
//
// A lease is a row by the SHA-256 of its key. Only the clock of the server counts. PostgreSQL needs
// one statement for each call. MySQL and MariaDB need one to six, sent as one text that both know.
//
// - *Tokens grow.* They are drawn from one counter for all keys, while the row is locked. If they
//   were drawn before, a slow transaction could bring a lower token after a higher one. So a row
//   may be removed without a memory of its token. It stays for a day, because PostgreSQL draws
//   before it inserts a new row.
// - *Our transactions do not deadlock with each other.* All lock their rows in the order of the
//   ids.

mod mysql;
mod postgres;
mod row;
pub(crate) use row::{id_of, start_of};

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Owner, Wish};

use crate::database::{Database, Pool};
use crate::error::{OpenError, SqlError};
use crate::tables::Tables;

/// Leases in PostgreSQL, MySQL or MariaDB.
///
/// Only the clock of the database server decides when a lease begins and ends. If that clock jumps
/// forward, leases run out early, and another process may have a key before its holder knows: then
/// the tokens protect the key. After an asynchronous fail-over they do not: a standby that was
/// behind draws tokens again, and those of two primaries have no order.
///
/// Transactions run at the isolation level of the connections. At `read committed`, the default of
/// PostgreSQL, calls wait for each other. At a higher level they may fail with a conflict instead,
/// and are repeated.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_leases::Leases;
/// use keylane_sql::{Database, SqlLeases, Tables};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("postgres://worker:secret@db.internal/orders").await?;
/// database.migrate(&Tables::new()).await?;
/// let store = SqlLeases::open(&database, &Tables::new()).await?;
///
/// let leases = Leases::open(Arc::new(store))?;
/// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
/// # drop(lease);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SqlLeases(Dialect);

#[derive(Debug)]
enum Dialect {
    Postgres(postgres::Leases),
    MySql(mysql::Leases),
}

impl SqlLeases {
    /// Announces in PostgreSQL, on the channel for elections, each lease that is released.
    pub(crate) fn announcing(database: &Database, tables: &Tables) -> Self {
        Self(match &database.0 {
            Pool::Postgres(pool) => {
                Dialect::Postgres(postgres::Leases::announcing(pool.clone(), tables))
            }
            Pool::MySql(pool) => Dialect::MySql(mysql::Leases::new(pool.clone(), tables)),
        })
    }

    /// Opens the leases in these tables, which must be [migrated](Database::migrate).
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the tables are older or newer than this program, or cannot be
    /// reached.
    pub async fn open(database: &Database, tables: &Tables) -> Result<Self, OpenError> {
        database.check(tables).await?;
        Ok(Self(match &database.0 {
            Pool::Postgres(pool) => Dialect::Postgres(postgres::Leases::new(pool.clone(), tables)),
            Pool::MySql(pool) => Dialect::MySql(mysql::Leases::new(pool.clone(), tables)),
        }))
    }

    /// Removes the rows of leases that ended a day ago or earlier, 1,000 in a statement. Returns
    /// how many it removed. Call it now and then if the set of keys changes.
    ///
    /// # Errors
    ///
    /// Returns [`SqlError`] if the database reports an error; some rows may be removed by then.
    pub async fn remove_old(&self) -> Result<u64, SqlError> {
        match &self.0 {
            Dialect::Postgres(leases) => leases.remove_old().await,
            Dialect::MySql(leases) => leases.remove_old().await,
        }
    }
}

#[async_trait]
impl LeaseStore for SqlLeases {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        if wishes.is_empty() {
            return Ok(Vec::new());
        }
        let answers = match &self.0 {
            Dialect::Postgres(leases) => leases.acquire(owner, wishes).await,
            Dialect::MySql(leases) => leases.acquire(owner, wishes).await,
        };
        answers.map_err(told)
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let answers = match &self.0 {
            Dialect::Postgres(leases) => leases.renew(owner, claims).await,
            Dialect::MySql(leases) => leases.renew(owner, claims).await,
        };
        answers.map_err(told)
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        if claims.is_empty() {
            return Ok(());
        }
        let released = match &self.0 {
            Dialect::Postgres(leases) => leases.release(owner, claims).await,
            Dialect::MySql(leases) => leases.release(owner, claims).await,
        };
        released.map_err(told)
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        let holder = match &self.0 {
            Dialect::Postgres(leases) => leases.held_by(key).await,
            Dialect::MySql(leases) => leases.held_by(key).await,
        };
        holder.map_err(told)
    }
}

pub(crate) fn told(error: SqlError) -> StoreError {
    StoreError::new(error.to_string())
}
