//! The calls of the inbox to a database. Each call is one transaction.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keylane_inbox::{Accepted, Letter, LetterKind, Stats, StoredMessage};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::backlog::Backlog;
use super::record::Items;
use super::turn::{Answer, Claimed, Found, MessageRef, RoundTrip, WorkerState};
use crate::error::SqlError;

#[async_trait]
pub(super) trait Backend: fmt::Debug + Send + Sync {
    /// Stores messages that are not repeated within the call.
    async fn accept(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError>;

    /// Returns at most `count` messages from a sequence on, and stops once they have `bytes` bytes.
    async fn scan(&self, from: u64, count: u64, bytes: u64)
    -> Result<Vec<StoredMessage>, SqlError>;

    async fn read(&self, sequences: &[u64]) -> Result<HashMap<u64, StoredMessage>, SqlError>;

    /// Removes messages, and turns others into letters.
    async fn settle(&self, done: &[u64], dead: &[Dead]) -> Result<(), SqlError>;

    async fn letters(&self, after: u64, limit: u64) -> Result<Vec<Letter>, SqlError>;

    async fn redrive(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError>;

    async fn purge_letters(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError>;

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, SqlError>;

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), SqlError>;

    async fn tail(&self) -> Result<u64, SqlError>;

    /// Returns all numbers except `live_bytes`.
    async fn stats(&self) -> Result<Stats, SqlError>;

    /// Returns what waits. Looks at so many rows of each table at most, in the order of an index.
    async fn backlog(&self) -> Result<Backlog, SqlError>;

    /// Removes up to `most` older marks. Returns how many it removed.
    async fn forget(&self, older: Duration, most: u64) -> Result<u64, SqlError>;

    /// Returns whether the inbox has entered the current history of the database.
    async fn is_entered(&self) -> Result<bool, SqlError>;

    /// Enters the history of the database if it is another one than before: numbers are drawn above
    /// all existing ones, and each message has a lane.
    async fn enter(&self) -> Result<(), SqlError>;

    /// Creates a worker in this history of the database. Its claims end after `ttl` unless it
    /// renews them. Its number is never used again.
    async fn join(&self, name: &str, ttl: Duration) -> Result<u64, SqlError>;

    /// Renews the claims of the worker. It must be [alive](WorkerState::Alive) in this history, and
    /// the database must have all renewals that the worker has an answer for: with fewer, the
    /// database is in an older state of itself.
    async fn renew(&self, worker: u64, ttl: Duration, heard: u64) -> Result<WorkerState, SqlError>;

    /// Frees up to `most` lanes of workers whose claims have run out. Returns how many.
    async fn free_dead(&self, most: u32) -> Result<u64, SqlError>;

    /// Frees up to `most` lanes of workers that do not exist any more. Returns how many. There are
    /// none if a worker cannot leave while it claims.
    async fn free_orphans(&self, most: u32) -> Result<u64, SqlError> {
        let _ = most;
        Ok(0)
    }

    /// Removes the worker and frees all of its lanes.
    async fn leave(&self, worker: u64) -> Result<(), SqlError>;

    /// Returns all lanes of a worker, for use after a lost answer.
    async fn lanes_of(&self, worker: u64) -> Result<Vec<Found>, SqlError>;

    /// Sends done-marks, dead letters and claims in one round trip.
    async fn turn(&self, turn: &RoundTrip) -> Result<Answer, SqlError>;

    /// Turns a message of a claimed lane into a letter. Returns true also if it is one already, and
    /// false if the lane is no longer ours and nothing was done.
    async fn dead_letter(
        &self,
        worker: u64,
        claimed: Claimed,
        message: MessageRef,
        dead: &Dead,
    ) -> Result<bool, SqlError>;

    /// Wakes the source when messages are accepted, until the task is aborted. `None`: this
    /// database sends no notifications.
    fn listen(&self, wake: Arc<Notify>) -> Option<JoinHandle<()>>;
}

/// A message that becomes a letter.
#[derive(Clone)]
pub(super) struct Dead {
    pub(super) sequence: u64,
    pub(super) attempts: u32,
    pub(super) kind: LetterKind,
    pub(super) error: String,
}
