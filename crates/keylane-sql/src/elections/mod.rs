//! Elections in tables: a row for each candidate, and one for the last term of each election.
//!
//! A term is a lease on the key of its election, in the table of all leases. Rows are found by the
//! SHA-256 of the key. The row of a term stays for ever: its token fences what earlier leaders
//! write.

// # How it works
//
// Each call is one transaction: one statement in PostgreSQL, and one text of several statements in
// MySQL and MariaDB.
//
// - *What a record has replaced is exact.* A call that writes a record has locked its row, and
//   returns what it found there then: what a new leader does depends on whether the term before it
//   has ended. So two records never replace the same one.
// - *The end of a term releases its lease* in the same transaction. The announcement of the term is
//   enough then: it wakes the candidate whose turn it is, which finds the lease free.
// - *Our transactions do not deadlock with each other.* A record locks the row of the term, then
//   that of one candidate, then that of the lease. Calls about leases lock no other rows. To enter,
//   or to withdraw, locks the row of one candidate. To remove candidates that have run out,
//   PostgreSQL passes by the rows that are locked; MySQL locks them in their order, in a
//   transaction of its own. A fence locks the row of the term only, shared.
// - *In PostgreSQL each change is announced* by the transaction that makes it (`waiters.rs`). An
//   announcement says what has changed, and not what is so now: two transactions that do not see
//   each other could not say that. One connection listens for all waiters of the store, outside the
//   pool. Each candidate waits for the one right before it, so a change makes one of them look.
// - *A waiter misses nothing.* From before its look on every change wakes it, and from after the
//   look on what concerns it does. When the listener begins, and begins again after it was
//   lost, all waiters look.

mod fence;
mod mysql;
mod postgres;
mod row;
mod waiters;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leader::ElectionStore;
use keylane_leader::store::{CandidateId, Election, Entry, History, Recorded, TermRecord};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Wish};
use keylane_leases::{LeaseStore, Owner, Token};

use crate::database::{Database, Pool};
use crate::error::{FenceError, OpenError, SqlError};
use crate::leases::{SqlLeases, told};
use crate::tables::Tables;
use crate::transaction::{Either, InTransaction};

/// How often the next candidate looks, unless set otherwise.
const POLL: Duration = Duration::from_millis(50);

const SHORTEST_POLL: Duration = Duration::from_millis(1);

/// Elections in PostgreSQL, MySQL or MariaDB: the store for one leader across processes.
///
/// Only the clock of the database server decides when a lease ends and when a silent candidate is
/// removed. Candidates of the same rank come in the order in which they entered.
///
/// # Who is woken
///
/// In PostgreSQL changes are announced (`LISTEN`), and each makes one candidate look, in whichever
/// process it is: the one whose turn it may be. Callers that only watch look when there is another
/// term or stage, or the lease is released. The store listens on one connection outside the pool,
/// from the first call of [`changed`](ElectionStore::changed) on. That connection must keep its
/// session: through PgBouncer in transaction mode nothing is heard. A change that was not heard is
/// found later, by [`poll`](Self::poll).
///
/// MySQL and MariaDB announce nothing. There the next candidate of an election looks every 50
/// milliseconds, and each other candidate and watcher once a second. Each look is one statement
/// that reads a few rows by their keys. So an election with ten candidates costs 29 statements a
/// second: 20 for the next one, and 9 for the others.
///
/// # The history
///
/// [`history`](ElectionStore::history) returns the history of the server. In PostgreSQL it is the
/// system identifier and the timeline: it changes in the moment in which a standby is promoted, or
/// a backup is recovered to a point in time. Every role may read it, unless an administrator has
/// revoked `execute` on `pg_control_system()`. A standby has no history, and the call fails there.
/// It does *not* change when an older copy of the files of a server is started in its place,
/// without a recovery to a point in time.
///
/// In MySQL and MariaDB it is the number, the host and the port of the server, and the UUID of
/// MySQL; in a cluster in which all servers take writes, it is the name of the cluster. It changes
/// when a connection leads to another server, also if nothing was lost. It does *not* change when a
/// server goes on with older files, when a dump is restored into it, or when a cluster begins again
/// with an older node. After such a step stop all candidates, and begin an election with another
/// key.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use keylane_leader::ElectionStore;
/// use keylane_sql::{Database, SqlElections, Tables};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("postgres://worker:secret@db.internal/orders").await?;
/// database.migrate(&Tables::new()).await?;
/// let elections = SqlElections::open(&database, &Tables::new()).await?;
///
/// let seen = elections.look(&"billing".into()).await?;
/// println!("the last term: {:?}", seen.term);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SqlElections {
    leases: SqlLeases,
    dialect: Dialect,
    poll: Duration,
}

#[derive(Debug)]
enum Dialect {
    Postgres(postgres::Elections),
    MySql(mysql::Elections),
}

impl SqlElections {
    /// Opens the elections in these tables, which must be [migrated](Database::migrate).
    ///
    /// In PostgreSQL this raises the counter of tokens if it is below those of earlier terms, as it
    /// is after a logical replication. That needs the right to update the sequence.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the tables are older or newer than this program, or cannot be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is opened.
    pub async fn open(database: &Database, tables: &Tables) -> Result<Self, OpenError> {
        database.check(tables).await?;
        let dialect = match &database.0 {
            Pool::Postgres(pool) => {
                let elections = postgres::Elections::new(pool.clone(), tables);
                elections.raise().await?;
                Dialect::Postgres(elections)
            }
            Pool::MySql(pool) => {
                Dialect::MySql(mysql::Elections::open(pool.clone(), tables).await?)
            }
        };
        Ok(Self {
            leases: SqlLeases::announcing(database, tables),
            dialect,
            poll: POLL,
        })
    }

    /// Sets how often the next candidate looks in MySQL and MariaDB: every 50 milliseconds, unless
    /// set. Other candidates, and those that only watch, look 20 times less often.
    ///
    /// In PostgreSQL all of them look 100 times less often (every 5 seconds), because changes are
    /// announced, and 10 times less often (every 500 milliseconds) while the connection that
    /// listens is lost.
    ///
    /// At least a millisecond.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every.max(SHORTEST_POLL);
        self
    }

    /// Fences a transaction of yours: it goes on only if the term of this token is the last one of
    /// the election. Until your transaction ends, no later term is recorded.
    ///
    /// So what an earlier leader writes is refused, or is committed before the first record of its
    /// successor. A successor must write nothing before that record. Call this at any point in the
    /// transaction, and in each transaction.
    ///
    /// Transactions of the same term do not wait for each other, but all records of the election
    /// wait for them. In PostgreSQL a record also waits for those that begin while it waits. So
    /// keep them short. Let the database end those of processes that are paused:
    /// `idle_in_transaction_session_timeout` in PostgreSQL, `idle_transaction_timeout` in MariaDB,
    /// or `wait_timeout` in MySQL.
    ///
    /// `key` is [that of the term](keylane_leader::Term::key), and not the name of the election.
    /// `history` is the one in which the term was granted: in another history the same token may be
    /// that of another leader. A term that has [ended](keylane_leader::store::Stage::Ended) may not
    /// write, either. The transaction must be in the database of the elections.
    ///
    /// The same in a statement of your own, which writes nothing if it is fenced. In PostgreSQL:
    ///
    /// ```sql
    /// update reports set text = $1 where id = $2 and exists (
    ///     select from keylane_terms
    ///     where id = sha256($3) and token = $4 and history = $5 and stage < 2 for share
    /// )
    /// ```
    ///
    /// In MySQL and MariaDB:
    ///
    /// ```sql
    /// update reports set text = ? where id = ? and exists (
    ///     select 1 from keylane_terms
    ///     where id = unhex(sha2(?, 256)) and token = ? and history = ? and stage < 2
    ///     lock in share mode
    /// )
    /// ```
    ///
    /// `$3` is the [key of the term](keylane_leader::Term::key), in bytes. This form compares the history in which the term
    /// was recorded, and not that of the server. Without the lock (`for share`), a successor could
    /// be recorded, and write, before your transaction is committed.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`] if another term is the last one, or the history is another one: roll
    /// the transaction back. [`FenceError::Sql`] if the database reports an error, or the
    /// connection is to another kind of database.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the row of the term may be locked until the transaction ends.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_leader::Term;
    /// use keylane_sql::{SqlElections, sqlx};
    ///
    /// # type Error = Box<dyn std::error::Error>;
    /// async fn publish(
    ///     elections: &SqlElections, pool: &sqlx::PgPool, term: &Term,
    /// ) -> Result<(), Error> {
    ///     let mut transaction = pool.begin().await?;
    ///     let (key, token, history) = (term.key(), term.token(), term.history());
    ///     elections.fence(&mut *transaction, key, token, history).await?;
    ///     sqlx::query("update reports set is_public = true").execute(&mut *transaction).await?;
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn fence<T: InTransaction>(
        &self,
        transaction: &mut T,
        key: &[u8],
        token: Token,
        history: &History,
    ) -> Result<(), FenceError> {
        let recent = match (&self.dialect, transaction.either()) {
            (Dialect::Postgres(elections), Either::Postgres(of)) => elections.fence(of, key).await,
            (Dialect::MySql(elections), Either::MySql(of)) => elections.fence(of, key).await,
            _ => Err(SqlError::other(
                "the transaction is in another kind of database than the elections",
            )),
        };
        let recent = recent.map_err(|error| error.at(|| self.named()));
        fence::judge(recent?, token, history)
    }

    /// Returns the database as errors name it.
    fn named(&self) -> String {
        match &self.dialect {
            Dialect::Postgres(elections) => elections.connections.named(),
            Dialect::MySql(elections) => elections.connections.named(),
        }
    }
}

#[async_trait]
impl LeaseStore for SqlElections {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.leases.acquire(owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.leases.renew(owner, claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        self.leases.release(owner, claims).await
    }

    async fn held_by(
        &self,
        key: &Bytes,
    ) -> Result<Option<keylane_leases::store::Holder>, StoreError> {
        self.leases.held_by(key).await
    }
}

#[async_trait]
impl ElectionStore for SqlElections {
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        let entered = match &self.dialect {
            Dialect::Postgres(elections) => elections.enter(key, entry, ttl).await,
            Dialect::MySql(elections) => elections.enter(key, entry, ttl).await,
        };
        entered.map_err(told)
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        let seen = match &self.dialect {
            Dialect::Postgres(elections) => elections.look(key).await,
            Dialect::MySql(elections) => elections.look(key).await,
        };
        seen.map_err(told)
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        let gone = match &self.dialect {
            Dialect::Postgres(elections) => elections.withdraw(key, candidate).await,
            Dialect::MySql(elections) => elections.withdraw(key, candidate).await,
        };
        gone.map_err(told)
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let recorded = match &self.dialect {
            Dialect::Postgres(elections) => elections.record(key, term).await,
            Dialect::MySql(elections) => elections.record(key, term).await,
        };
        recorded.map_err(told)
    }

    async fn history(&self) -> Result<History, StoreError> {
        let history = match &self.dialect {
            Dialect::Postgres(elections) => elections.history().await,
            Dialect::MySql(elections) => elections.history().await,
        };
        history.map(History::new).map_err(told)
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let changed = match &self.dialect {
            Dialect::Postgres(elections) => {
                elections.changed(key, candidate, seen, self.poll).await
            }
            Dialect::MySql(elections) => elections.changed(key, candidate, seen, self.poll).await,
        };
        changed.map_err(told)
    }
}
