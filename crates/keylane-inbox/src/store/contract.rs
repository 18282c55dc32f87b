//! What an inbox asks of its store, and what it is answered.

use std::fmt;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{AcceptError, StoreError};
use crate::letter::{Letter, LetterKind};
use crate::message::{NewMessage, StoredMessage};

/// Keeps messages until they are settled.
///
/// Every message has a *sequence*: the first one 1, and each later one a higher number, in the
/// order in which they were accepted. A sequence is never used twice, also not after a restart of
/// an empty store. A message is *waiting* until it is settled as done, or becomes a dead *letter*.
///
/// When a write has returned `Ok`, it is durable: it survives the end of the process and a power
/// failure, unless the store was opened with a weaker setting, such as
/// [`SyncMode::LosesUpTo`](super::SyncMode::LosesUpTo).
///
/// # Writing one
///
/// The suite in [`conformance`](crate::conformance) says whether a store keeps to all of this.
///
/// # Cancel safety
///
/// All writes: once the future was polled, the write may be done, whether the future is dropped or
/// not; it is done as a whole or not at all. Reads change nothing.
#[async_trait]
pub trait InboxStore: Send + Sync + 'static {
    /// Stores messages, all of them or none. The answers are in the order of the messages, and so
    /// are the sequences.
    ///
    /// A message whose id, or key and version, is known from a message before it is absorbed:
    /// nothing is stored, and the answer names the earlier one, which may be done by now.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] gives the messages back.
    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>>;

    /// Waiting messages with a sequence of at least `from`, in the order of their sequences: at
    /// most so many, and no more once they have so many bytes. If there is any, and `count` is not
    /// zero, there is at least one in the answer, however large it is.
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

    /// The waiting messages with these sequences, in this order; `None` for what does not wait.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn read(&self, sequences: &[u64]) -> Result<Vec<Option<StoredMessage>>, StoreError>;

    /// Ends the waiting of messages. What does not wait, or no longer waits, is passed over, so
    /// the call may be repeated.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: some or none of it may be done; call it again.
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError>;

    /// Dead letters with a sequence above `after`, at most so many, in the order of their
    /// sequences.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn letters(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError>;

    /// One dead letter.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn letter(&self, sequence: u64) -> Result<Option<Letter>, StoreError>;

    /// Puts letters back among the waiting messages, each under the sequence that it always had:
    /// ahead of all messages of its key that were accepted after it. Returns the sequences that
    /// were letters.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: call it again.
    async fn redrive(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError>;

    /// Removes letters for ever. Returns the sequences that were letters.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: call it again.
    async fn purge_letters(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError>;

    /// The highest version that was recorded for a key.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn version(&self, key: &[u8]) -> Result<Option<u64>, StoreError>;

    /// Records a version of a key. One that is below what is recorded changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: call it again.
    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), StoreError>;

    /// Whether no message appears below a sequence that was scanned, other than a letter that is
    /// redriven. A store in which calls commit in another order than that of their sequences
    /// returns `false`, and is read by a source of its own: [`Inbox::source`](crate::Inbox::source)
    /// is refused.
    fn is_scanned_in_order(&self) -> bool {
        true
    }

    /// Where the store ends, and whether letters came back: what a reader waits on.
    fn tail(&self) -> watch::Receiver<Tail>;

    /// Takes what was redriven since the last call. For one reader.
    fn take_redriven(&self) -> Redriven;

    /// How much there is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Takes no more writes, waits for those under way, and releases the store. Every later call
    /// returns [`StoreError::Closed`]; another `close` waits as well.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the last writes could not be made durable. The store is released
    /// nevertheless.
    async fn close(&self) -> Result<(), StoreError>;
}

/// What became of a message that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It waits under this sequence.
    Stored(u64),
    /// It is the message with this sequence once more, and was absorbed.
    Duplicate(u64),
}

impl Accepted {
    /// The sequence under which the message is, or was, in the store.
    pub fn sequence(self) -> u64 {
        match self {
            Self::Stored(sequence) | Self::Duplicate(sequence) => sequence,
        }
    }

    /// Whether it was absorbed.
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate(_))
    }
}

/// What became of a message that waited.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub enum Settled {
    /// It was handled, and is removed.
    Done(u64),
    /// It was given up on, and becomes a letter.
    DeadLetter {
        /// The message.
        sequence: u64,
        /// How often its handler was started.
        attempts: u32,
        /// What kind of end the last attempt had.
        kind: LetterKind,
        /// What is to be said about it. Cut to [`Letter::MAX_ERROR_BYTES`].
        error: String,
    },
}

impl Settled {
    /// The message it is about.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Done(sequence) | Self::DeadLetter { sequence, .. } => *sequence,
        }
    }
}

// An error may quote what is not to be logged.
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

/// Where a store ends.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The highest sequence that was given to a message; 0 if none was ever.
    pub sequence: u64,
    /// How many letters were redriven since the store was opened: when it changes,
    /// [`InboxStore::take_redriven`] names them.
    pub redrives: u64,
}

/// Letters that wait again.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// These, in the order in which they were redriven.
    Sequences(Vec<u64>),
    /// Too many to name: all messages that wait from here on are to be looked at again.
    From(u64),
}

/// How much is in a store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that wait, those included that are being handled.
    pub waiting: u64,
    /// Their records: keys, payloads, headers, and about 30 bytes each.
    pub waiting_bytes: u64,
    /// The lowest sequence that waits.
    pub oldest: Option<u64>,
    /// The highest sequence that was given to a message; 0 if none was ever.
    pub tail: u64,
    /// Dead letters.
    pub letters: u64,
    /// Their records.
    pub letters_bytes: u64,
    /// Ids and versions that are remembered to absorb duplicates.
    pub known: u64,
    /// Keys with a recorded version.
    pub versions: u64,
    /// What all of that takes at least: the live bytes.
    pub live_bytes: u64,
    /// What the file takes, free space in it included.
    pub file_bytes: u64,
    /// Commits since the store was opened.
    pub commits: u64,
    /// Commits that failed since the store was opened.
    pub failed_commits: u64,
    /// How often the file was compacted since the store was opened.
    pub compactions: u64,
}
