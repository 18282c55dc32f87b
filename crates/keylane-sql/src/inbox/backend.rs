//! What the inbox asks of a database. Each call is one transaction.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keylane_inbox::{Accepted, Letter, LetterKind, Stats, StoredMessage};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::item::Items;
use super::turn::{Answer, Claimed, Found, MessageRef, RoundTrip, WorkerState};
use crate::error::SqlError;

#[async_trait]
pub(super) trait Backend: fmt::Debug + Send + Sync {
    /// Stores messages that are not repeated within the call.
    async fn accept(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError>;

    /// Messages from a sequence on, so many, and no more once there are so many bytes.
    async fn scan(&self, from: u64, count: u64, bytes: u64)
    -> Result<Vec<StoredMessage>, SqlError>;

    async fn read(&self, sequences: &[u64]) -> Result<HashMap<u64, StoredMessage>, SqlError>;

    /// Removes messages, and makes others letters.
    async fn settle(&self, done: &[u64], dead: &[Dead]) -> Result<(), SqlError>;

    async fn letters(&self, after: u64, limit: u64) -> Result<Vec<Letter>, SqlError>;

    async fn redrive(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError>;

    async fn purge_letters(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError>;

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, SqlError>;

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), SqlError>;

    async fn tail(&self) -> Result<u64, SqlError>;

    /// All but `live_bytes`.
    async fn stats(&self) -> Result<Stats, SqlError>;

    /// Removes up to so many marks that are older. Returns how many.
    async fn forget(&self, older: Duration, most: u64) -> Result<u64, SqlError>;

    /// Whether the history of the database is the one that it had.
    async fn is_entered(&self) -> Result<bool, SqlError>;

    /// If the database has another history than it had, what it needs to go on is seen to: numbers
    /// are drawn above all that are there, and each message has a lane.
    async fn enter(&self) -> Result<(), SqlError>;

    /// A worker of its own in this history of the database, whose claims end at this time unless it
    /// renews them. Its number is never given again.
    async fn join(&self, name: &str, ttl: Duration) -> Result<u64, SqlError>;

    /// The claims of the worker go on, if it is [alive](WorkerState::Alive) in this history of the
    /// database, and all renewals are there that it has heard of: of fewer, the database knows an
    /// older state of itself.
    async fn renew(&self, worker: u64, ttl: Duration, heard: u64) -> Result<WorkerState, SqlError>;

    /// Frees the lanes of workers whose claims have run out, up to so many. Returns how many.
    async fn free_dead(&self, most: u32) -> Result<u64, SqlError>;

    /// Frees lanes of workers that are not there any more, up to so many. Returns how many. There
    /// are none where a worker cannot go while it claims.
    async fn free_orphans(&self, most: u32) -> Result<u64, SqlError> {
        let _ = most;
        Ok(0)
    }

    /// The worker goes, and all of its lanes are free.
    async fn leave(&self, worker: u64) -> Result<(), SqlError>;

    /// All lanes of a worker, as they are found after an answer was lost.
    async fn lanes_of(&self, worker: u64) -> Result<Vec<Found>, SqlError>;

    /// Done-marks, dead letters and claims in one round trip.
    async fn turn(&self, turn: &RoundTrip) -> Result<Answer, SqlError>;

    /// Makes a message of a claimed lane a letter. True also if it is one already; false: the lane
    /// is not ours any more, and nothing was done.
    async fn dead_letter(
        &self,
        worker: u64,
        claimed: Claimed,
        message: MessageRef,
        dead: &Dead,
    ) -> Result<bool, SqlError>;

    /// Wakes the source when messages are accepted, as long as the task is not aborted. `None`:
    /// this database tells nothing.
    fn listen(&self, wake: Arc<Notify>) -> Option<JoinHandle<()>>;
}

/// A message that is given up on.
#[derive(Clone)]
pub(super) struct Dead {
    pub(super) sequence: u64,
    pub(super) attempts: u32,
    pub(super) kind: LetterKind,
    pub(super) error: String,
}
