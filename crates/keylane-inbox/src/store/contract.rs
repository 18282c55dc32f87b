//! The interface between an inbox and its store.

use std::fmt;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{AcceptError, StoreError};
use crate::letter::{Letter, LetterKind};
use crate::message::{NewMessage, StoredMessage};

/// Keeps messages until they are settled.
///
/// Every message has a *sequence*: the first has 1, and each later one a higher number, in the
/// order in which they were accepted. A sequence is never used twice, not even after a restart of
/// an empty store. A message is *waiting* until it is settled as done, or becomes a dead *letter*.
///
/// A write that has returned `Ok` is durable: it survives the end of the process and a power
/// failure, unless the store was opened with a weaker setting, such as
/// [`SyncMode::LosesUpTo`](super::SyncMode::LosesUpTo).
///
/// # Implementing a store
///
/// The suite in [`conformance`](crate::conformance) checks all of these rules.
///
/// # Cancel safety
///
/// For all writes: once the future was polled, the write may happen even if the future is dropped;
/// it happens as a whole or not at all. Reads change nothing.
#[async_trait]
pub trait InboxStore: Send + Sync + 'static {
    /// Stores all messages or none. The answers are in the order of the messages, and so are the
    /// sequences.
    ///
    /// A message is absorbed if its id, or its key and version, is known from an earlier message:
    /// nothing is stored, and the answer names the earlier one, which may be done by now.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] gives the messages back.
    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>>;

    /// Returns waiting messages with a sequence of at least `from`, in the order of their
    /// sequences: at most `count`, and no more once they have so many bytes. If there is any, and
    /// `count` is not zero, the answer contains at least one, however large it is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn scan(
        &self,
        from: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Vec<StoredMessage>, StoreError>;

    /// Returns the waiting messages with these sequences, in this order; `None` for a message that
    /// does not wait.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn read(&self, sequences: &[u64]) -> Result<Vec<Option<StoredMessage>>, StoreError>;

    /// Settles messages, which then no longer wait. Ignores messages that do not wait, so the call
    /// may be repeated.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: some or none of them may be settled; repeat the call.
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError>;

    /// Returns at most `limit` dead letters with a sequence above `after`, in the order of their
    /// sequences.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn letters(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError>;

    /// Returns one dead letter.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn letter(&self, sequence: u64) -> Result<Option<Letter>, StoreError>;

    /// Puts letters back among the waiting messages, each under its original sequence: ahead of all
    /// messages of its key that were accepted after it. Returns the sequences that were letters.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: repeat the call.
    async fn redrive(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError>;

    /// Removes letters for ever. Returns the sequences that were letters.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: repeat the call.
    async fn purge_letters(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError>;

    /// Returns the highest version that was recorded for a key.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn version(&self, key: &[u8]) -> Result<Option<u64>, StoreError>;

    /// Records a version of a key. A version below the recorded one changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: repeat the call.
    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), StoreError>;

    /// Returns whether no message appears below a sequence that was scanned, except a redriven
    /// letter. A store whose calls commit in another order than that of their sequences returns
    /// `false`, and needs a source of its own: [`Inbox::source`](crate::Inbox::source) is refused.
    fn is_scanned_in_order(&self) -> bool {
        true
    }

    /// Returns the name of the inbox in events, logs and metrics, without secrets. Two inboxes of a
    /// process with different names are told apart. The default is empty: then the source is called
    /// `inbox`, and otherwise `inbox` and this name.
    fn name(&self) -> &str {
        ""
    }

    /// Returns the end of the store, and how many letters came back: readers wait for a change of
    /// it.
    fn tail(&self) -> watch::Receiver<Tail>;

    /// Takes the letters that were redriven since the last call. For one reader.
    fn take_redriven(&self) -> Redriven;

    /// Returns how much the store contains.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Takes no more writes, waits for those in progress, and releases the store. Every later call
    /// returns [`StoreError::Closed`]; another `close` waits as well.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the last writes could not be made durable. The store is released all the
    /// same.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The result for a message to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It waits under this sequence.
    Stored(u64),
    /// It repeats the message with this sequence, and was absorbed.
    Duplicate(u64),
}

impl Accepted {
    /// Returns the sequence under which the message is, or was, in the store.
    pub fn sequence(self) -> u64 {
        match self {
            Self::Stored(sequence) | Self::Duplicate(sequence) => sequence,
        }
    }

    /// Returns whether it was absorbed.
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate(_))
    }
}

/// The outcome of a waiting message.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub enum Settled {
    /// It was handled, and is removed.
    Done(u64),
    /// It becomes a dead letter.
    DeadLetter {
        /// The message.
        sequence: u64,
        /// How often its handler was started.
        attempts: u32,
        /// How the last attempt ended.
        kind: LetterKind,
        /// The error. Cut to [`Letter::MAX_ERROR_BYTES`].
        error: String,
    },
}

impl Settled {
    /// Returns the sequence of the message.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Done(sequence) | Self::DeadLetter { sequence, .. } => *sequence,
        }
    }
}

// An error may quote a secret.
impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(sequence) => f.debug_tuple("Done").field(sequence).finish(),
            Self::DeadLetter {
                sequence,
                attempts,
                kind,
                ..
            } => f
                .debug_struct("DeadLetter")
                .field("sequence", sequence)
                .field("attempts", attempts)
                .field("kind", kind)
                .finish_non_exhaustive(),
        }
    }
}

/// The end of a store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The highest sequence of all messages; 0 if there was none yet.
    pub sequence: u64,
    /// How many letters were redriven since the store was opened: after a change,
    /// [`InboxStore::take_redriven`] names them.
    pub redrives: u64,
}

/// Letters that wait again.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// These sequences, in the order in which they were redriven.
    Sequences(Vec<u64>),
    /// Too many to name: look again at all messages that wait from this sequence on.
    From(u64),
}

/// How much a store contains.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Waiting messages, including those that are being handled.
    pub waiting: u64,
    /// The bytes of their records: keys, payloads, headers, and about 30 bytes each.
    pub waiting_bytes: u64,
    /// The lowest sequence that waits.
    pub oldest: Option<u64>,
    /// The highest sequence of all messages; 0 if there was none yet.
    pub tail: u64,
    /// Dead letters.
    pub letters: u64,
    /// The bytes of their records.
    pub letters_bytes: u64,
    /// Ids and versions that are remembered to absorb duplicates.
    pub known: u64,
    /// Keys with a recorded version.
    pub versions: u64,
    /// The live bytes: the least that all of that takes.
    pub live_bytes: u64,
    /// The bytes of the file, including its free space.
    pub file_bytes: u64,
    /// Commits since the store was opened.
    pub commits: u64,
    /// Commits that failed since the store was opened.
    pub failed_commits: u64,
    /// How often the file was compacted since the store was opened.
    pub compactions: u64,
}
