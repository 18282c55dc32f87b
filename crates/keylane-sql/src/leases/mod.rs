//! Leases in a table: one row for each key.
//!
//! The key itself may be of any length, so that rows are found by its SHA-256. A row stays when its
//! lease ends, and is removed a day later: see [`SqlLeases::remove_old`].
//!
//! Tokens of all keys are from one counter, and each is drawn while its row is locked. So the
//! tokens of a key grow in the order of its grants, also when its row was removed in between.

mod mysql;
mod postgres;

use std::time::Duration;

use async_trait::async_trait;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use sha2::{Digest, Sha256};

use crate::database::{Database, Pool};
use crate::error::{OpenError, SqlError};
use crate::tables::Tables;

/// How much of a key is in its row, for those who look at the table.
const SHOWN: usize = 64;

/// Leases in PostgreSQL, MySQL or MariaDB.
///
/// Grants and ends are by the clock of the database server, and by that alone. Where that clock
/// jumps forward, leases run out early, and another process may have a key before its holder knows:
/// then the tokens are what counts.
///
/// Transactions run at the level of isolation that the connections have. At `read committed`, which
/// is the default of PostgreSQL, calls wait for each other; at a higher one they may fail with a
/// conflict instead, and are made again.
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
    /// Leases in these tables, which were [migrated](Database::migrate) before.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the tables are older or newer than this program, or cannot be reached.
    pub async fn open(database: &Database, tables: &Tables) -> Result<Self, OpenError> {
        database.check(tables).await?;
        Ok(Self(match &database.0 {
            Pool::Postgres(pool) => Dialect::Postgres(postgres::Leases::new(pool.clone(), tables)),
            Pool::MySql(pool) => Dialect::MySql(mysql::Leases::new(pool.clone(), tables)),
        }))
    }

    /// Removes the rows of leases that have ended a day ago or more, 1,000 in a statement. Returns
    /// how many there were. To be called now and then, where keys are not always the same.
    ///
    /// # Errors
    ///
    /// [`SqlError`]: some are removed.
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
}

fn told(error: SqlError) -> StoreError {
    StoreError::new(error.to_string())
}

fn id_of(key: &[u8]) -> Vec<u8> {
    Sha256::digest(key).to_vec()
}

fn start_of(key: &[u8]) -> Vec<u8> {
    key[..key.len().min(SHOWN)].to_vec()
}

/// Another owner has the lease, for so many microseconds by the clock of the server. `None`: it was
/// granted to that owner while the statement ran.
fn taken(micros: Option<i64>, wish: &Wish) -> Answer {
    let micros = micros.map(|micros| u64::try_from(micros).unwrap_or(0));
    Answer::Taken {
        remaining: micros.map_or(wish.ttl, Duration::from_micros),
    }
}

/// The places in the order of their ids. Rows are locked in that order by all, so that no two wait
/// for each other.
fn in_order<T>(all: &[T], id: impl Fn(&T) -> Vec<u8>) -> Vec<(Vec<u8>, &T)> {
    let mut sorted: Vec<(Vec<u8>, &T)> = all.iter().map(|one| (id(one), one)).collect();
    sorted.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    sorted
}
