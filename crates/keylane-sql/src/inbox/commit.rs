//! Effects that commit together with the done-mark of their message.

use std::fmt;
use std::sync::Arc;

use sqlx::{MySqlConnection, PgConnection};
use tokio::sync::OwnedSemaphorePermit;

use super::SqlInbox;
use super::claim::{Claim, Finish};
use super::{mysql, postgres, uncommitted};
use crate::database::Pool;
use crate::error::{CommitError, SqlError};
use crate::link::Lent;

/// A transaction with the writes of a handler and the done-mark of its message: both commit, or
/// neither.
///
/// If it is dropped, it is rolled back. If the attempt then returns `Ok` without a
/// [commit](Self::commit) or a [rollback](Self::rollback), its message becomes a dead letter: the
/// writes of the handler are lost, and the message must not be.
#[must_use = "without a commit it is rolled back"]
pub struct SqlTransaction {
    connection: Connection,
    open: Open,
    _permit: OwnedSemaphorePermit,
}

/// Marks a transaction that has neither committed nor rolled back.
struct Open {
    inbox: SqlInbox,
    claim: Claim,
    is_ended: bool,
}

impl Open {
    fn end(mut self) {
        self.is_ended = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let message = self.claim.in_hand();
        match self.is_ended {
            // The attempt may have dropped another transaction before.
            true => drop(uncommitted::remove(message)),
            false => uncommitted::add(message),
        }
    }
}

enum Connection {
    Postgres(Lent<sqlx::Postgres>),
    MySql(Lent<sqlx::MySql>),
}

/// The result of a [commit](SqlTransaction::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Committed {
    /// The writes of the handler are committed, together with the done-mark of its message.
    Now,
    /// Nothing is committed: an earlier attempt, whose answer was lost, finished the message. The
    /// writes of this attempt are rolled back.
    Earlier,
}

impl SqlInbox {
    /// Begins a transaction for the handler of a message. End it with a
    /// [commit](SqlTransaction::commit) or a [rollback](SqlTransaction::rollback) before the
    /// handler returns `Ok`. In a handler of batches, the transaction and its drop concern only the
    /// message of the claim.
    ///
    /// With it the effects of a handler happen once: an attempt that fails, is dropped or dies
    /// leaves nothing behind, and an attempt that has committed is not repeated.
    ///
    /// Five connections of the pool are reserved for the source, which renews its claims with them.
    /// When handlers use all others, further calls wait until a handler ends its transaction.
    ///
    /// A process that is paused in the middle keeps the locks of its writes. Let the database end
    /// such transactions sooner than claims end: `idle_in_transaction_session_timeout` below
    /// [`lease`](super::SourceSettings::lease), or `wait_timeout`.
    ///
    /// # Errors
    ///
    /// [`SqlError`] if the database cannot be reached, or its sessions can only read.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing happens.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_sql::{Claim, SqlInbox, sqlx};
    ///
    /// struct Payment { claim: Claim, account: i64, cents: i64 }
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// async fn book(inbox: &SqlInbox, payment: &Payment) -> Result<(), Error> {
    ///     let mut transaction = inbox.begin(payment.claim).await?;
    ///     sqlx::query("update accounts set cents = cents + $2 where id = $1")
    ///         .bind(payment.account)
    ///         .bind(payment.cents)
    ///         .execute(transaction.postgres())
    ///         .await?;
    ///     let _ = transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn begin(&self, claim: Claim) -> Result<SqlTransaction, SqlError> {
        let begins = Arc::clone(&self.shared.begins);
        let permit = begins.acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let connection = match &self.shared.database.0 {
            Pool::Postgres(pool) => Connection::Postgres(postgres::begin(pool).await?),
            Pool::MySql(pool) => Connection::MySql(mysql::begin(pool).await?),
        };
        Ok(SqlTransaction {
            connection,
            open: Open {
                inbox: self.clone(),
                claim,
                is_ended: false,
            },
            _permit: permit,
        })
    }
}

impl SqlTransaction {
    /// Returns the connection to PostgreSQL.
    ///
    /// # Panics
    ///
    /// Panics if the inbox is in MySQL or MariaDB.
    pub fn postgres(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Connection::Postgres(lent) => lent.get(),
            Connection::MySql(_) => panic!("the inbox is in MySQL: call `mysql`"),
        }
    }

    /// Returns the connection to MySQL or MariaDB.
    ///
    /// # Panics
    ///
    /// Panics if the inbox is in PostgreSQL.
    pub fn mysql(&mut self) -> &mut MySqlConnection {
        match &mut self.connection {
            Connection::MySql(lent) => lent.get(),
            Connection::Postgres(_) => panic!("the inbox is in PostgreSQL: call `postgres`"),
        }
    }

    /// Commits the writes of the handler together with the done-mark of the message. Then return
    /// `Ok` from the handler, with either value of [`Committed`].
    ///
    /// # Errors
    ///
    /// [`CommitError::Lost`] if the claim has ended: another process has the key, or may have it,
    /// and nothing is committed. This includes a claim from before the promotion of a standby that
    /// was behind. [`CommitError::Sql`] if the database refuses or does not answer: then it is not
    /// known whether the transaction is committed, and the next attempt finds out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the transaction may be committed; the next attempt finds out.
    pub async fn commit(self) -> Result<Committed, CommitError> {
        let Self {
            connection,
            open,
            _permit,
        } = self;
        let (tables, claim) = (&open.inbox.shared.tables, open.claim);
        let finished = match connection {
            Connection::Postgres(lent) => postgres::commit(lent, tables, claim).await?,
            Connection::MySql(lent) => {
                let history = open.inbox.shared.history.as_ref();
                let history = history.expect("an inbox in MySQL knows its history");
                mysql::commit(lent, tables, history, claim).await?
            }
        };
        let committed = match finished {
            Finish { is_ours: false, .. } => return Err(CommitError::Lost),
            Finish { was_here: true, .. } => Committed::Now,
            Finish { .. } => Committed::Earlier,
        };
        open.end();
        Ok(committed)
    }

    /// Rolls back the writes of the handler. If the handler returns `Ok`, its message is done.
    ///
    /// # Errors
    ///
    /// [`SqlError`] if the database does not answer: nothing is written then, either.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the transaction is dropped too.
    pub async fn rollback(self) -> Result<(), SqlError> {
        match self.connection {
            Connection::Postgres(mut lent) => {
                let ended = sqlx::raw_sql("rollback").execute(lent.get()).await;
                lent.end_or_close(ended)?;
            }
            Connection::MySql(mut lent) => {
                let ended = sqlx::raw_sql("rollback").execute(lent.get()).await;
                lent.end_or_close(ended)?;
            }
        }
        self.open.end();
        Ok(())
    }
}

impl fmt::Debug for SqlTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTransaction")
            .field("claim", &self.open.claim)
            .finish_non_exhaustive()
    }
}
