//! Effects that are committed together with the done-mark of their message.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use keylane_source::RawMessage;
use sqlx::{MySqlConnection, PgConnection};
use tokio::sync::OwnedSemaphorePermit;

use super::SqlInbox;
use super::lane::LaneId;
use super::turn::{Claimed, MessageRef};
use super::uncommitted;
use crate::database::{Database, Pool};
use crate::error::{CommitError, SqlError};
use crate::lent::Lent;

/// Connections that are kept for the source: see the README.
const OF_SOURCE: u32 = 5;

/// How many transactions of handlers there may be at a time.
pub(super) fn begins(database: &Database) -> usize {
    database.most().saturating_sub(OF_SOURCE).max(1) as usize
}

/// The claim under which a message was handed over. Keep it in what you decode, and a handler can
/// [finish in a transaction](SqlInbox::begin).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub(super) worker: u64,
    pub(super) claimed: Claimed,
    pub(super) message: MessageRef,
    /// Of the source that has handed it over.
    pub(super) opening: u64,
}

/// How a claim is written down: the lane, and five numbers.
const BYTES: usize = 32 + 5 * 8;

impl Claim {
    /// The claim of a message, if it comes from an inbox in tables.
    pub fn of(raw: &RawMessage) -> Option<Self> {
        let position = raw.position.as_deref()?;
        let (lane, numbers) = position.split_first_chunk::<32>()?;
        let mut numbers = numbers.chunks_exact(8);
        let mut number = || Some(u64::from_le_bytes(numbers.next()?.try_into().ok()?));
        let (worker, token) = (number()?, number()?);
        let (sequence, nonce) = (number()?, number()?);
        let opening = number()?;
        let lane = LaneId(*lane);
        Some(Self {
            worker,
            claimed: Claimed { lane, token },
            message: MessageRef { sequence, nonce },
            opening,
        })
        .filter(|_| position.len() == BYTES)
    }

    /// The number of the claim. Of a key, a later claim has a higher one: what writes elsewhere can
    /// compare it there.
    pub fn token(&self) -> u64 {
        self.claimed.token
    }

    fn in_hand(&self) -> uncommitted::InHand {
        (self.opening, self.message.sequence)
    }

    pub(super) fn to_bytes(self) -> Bytes {
        let Claimed { lane, token } = self.claimed;
        let MessageRef { sequence, nonce } = self.message;
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(lane.0);
        for number in [self.worker, token, sequence, nonce, self.opening] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.into()
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("sequence", &self.message.sequence)
            .field("token", &self.claimed.token)
            .finish_non_exhaustive()
    }
}

/// What a handler writes, and that its message is done, in one transaction: both, or nothing.
///
/// Dropped, it is rolled back. If the attempt returns `Ok` then, with neither a
/// [commit](Self::commit) nor a [rollback](Self::rollback), its message becomes a dead letter: what
/// the handler believes to have written is gone, and the message is not.
#[must_use = "without a commit it is rolled back"]
pub struct SqlTransaction {
    connection: Connection,
    open: Open,
    _permit: OwnedSemaphorePermit,
}

/// That a transaction has neither committed nor rolled back.
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
            // The attempt may have dropped another one before.
            true => drop(uncommitted::remove(message)),
            false => uncommitted::add(message),
        }
    }
}

enum Connection {
    Postgres(Lent<sqlx::Postgres>),
    MySql(Lent<sqlx::MySql>),
}

/// What a [commit](SqlTransaction::commit) has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Committed {
    /// What the handler has written, and that its message is done.
    Now,
    /// Nothing: the message was done already, by an attempt whose answer was lost. What this
    /// attempt has written is rolled back.
    Earlier,
}

impl SqlInbox {
    /// Begins a transaction for the handler of a message. End it by a
    /// [commit](SqlTransaction::commit) or a [rollback](SqlTransaction::rollback) before the
    /// handler returns `Ok`. In a handler of batches it is for the message of the claim alone, and
    /// so is what happens if it is dropped.
    ///
    /// With it the effects of a handler happen once: an attempt that fails, is dropped or dies
    /// leaves nothing behind, and one that was committed is not made again.
    ///
    /// Five connections of the pool are kept for the source, which renews its claims by them. When
    /// handlers have all others, further calls wait until one of them has ended its transaction.
    ///
    /// A process that is paused in the middle keeps the locks of what it has written. Let the
    /// database end such transactions sooner than claims do: `idle_in_transaction_session_timeout`
    /// below [`ttl`](super::SourceSettings::ttl), or `wait_timeout`.
    ///
    /// # Errors
    ///
    /// [`SqlError`] if the database cannot be reached, or its sessions can only read.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has happened.
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
        let permit = permit.expect("it is never closed");
        let connection = match &self.shared.database.0 {
            Pool::Postgres(pool) => Connection::Postgres(super::postgres::begin(pool).await?),
            Pool::MySql(pool) => Connection::MySql(super::mysql::begin(pool).await?),
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
    /// The connection, to PostgreSQL.
    ///
    /// # Panics
    ///
    /// If the inbox is in MySQL or MariaDB.
    pub fn postgres(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Connection::Postgres(lent) => lent.get(),
            Connection::MySql(_) => panic!("the inbox is in MySQL: call `mysql`"),
        }
    }

    /// The connection, to MySQL or MariaDB.
    ///
    /// # Panics
    ///
    /// If the inbox is in PostgreSQL.
    pub fn mysql(&mut self) -> &mut MySqlConnection {
        match &mut self.connection {
            Connection::MySql(lent) => lent.get(),
            Connection::Postgres(_) => panic!("the inbox is in PostgreSQL: call `postgres`"),
        }
    }

    /// Commits what was written, together with the mark that the message is done. Return `Ok` from
    /// the handler then, whichever [`Committed`] it is.
    ///
    /// # Errors
    ///
    /// [`CommitError::Lost`] if the claim has ended: another process has the key, or may have it,
    /// and nothing is committed. So it is if the claim was made before a standby that was behind
    /// was promoted. [`CommitError::Sql`] if the database says no, or is not heard: then it is not
    /// known whether it was committed, and the next attempt will know.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may be committed; the next attempt will know.
    pub async fn commit(self) -> Result<Committed, CommitError> {
        let Self {
            connection,
            open,
            _permit,
        } = self;
        let (tables, claim) = (&open.inbox.shared.tables, open.claim);
        let finished = match connection {
            Connection::Postgres(lent) => super::postgres::commit(lent, tables, claim).await?,
            Connection::MySql(lent) => {
                let history = open.inbox.shared.history.as_ref();
                let history = history.expect("an inbox in MySQL knows its history");
                super::mysql::commit(lent, tables, history, claim).await?
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

    /// Leaves nothing of what was written. If the handler returns `Ok`, its message is done.
    ///
    /// # Errors
    ///
    /// [`SqlError`] if the database is not heard: nothing is left then, either.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the transaction is dropped.
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

/// What a commit has found. It has committed if both are true, and rolled back otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    pub(super) is_ours: bool,
    pub(super) was_here: bool,
}

impl fmt::Debug for SqlTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTransaction")
            .field("claim", &self.open.claim)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_written_down_and_read() {
        let claim = Claim {
            worker: 7,
            claimed: Claimed {
                lane: LaneId::of(b"key"),
                token: u64::MAX,
            },
            message: MessageRef {
                sequence: 3,
                nonce: 5,
            },
            opening: 9,
        };
        let mut raw = RawMessage::new("payload");
        assert_eq!(Claim::of(&raw), None);
        raw.position = Some(claim.to_bytes());
        assert_eq!(Claim::of(&raw), Some(claim));
        for end in 0..BYTES {
            raw.position = Some(claim.to_bytes().slice(..end));
            assert_eq!(Claim::of(&raw), None, "{end}");
        }
        raw.position = Some([&claim.to_bytes()[..], &[0]].concat().into());
        assert_eq!(Claim::of(&raw), None, "too long");
    }
}
