//! What a spool keeps on the disk: the accepted messages that are not delivered.

// The core decides what is written and removed; the writer, a thread of its own, takes as much work
// as there is, commits it at once, and tells the core. `Journal` is what the writer needs of a
// store, and `RedbJournal` is the store. `DiskError` is what all of them fail with.

mod error;
pub use error::{DiskError, DiskErrorKind};

mod record;
pub(super) use record::{encoded_len, is_encodable};

mod store;
pub(super) use store::{Drawn, RedbJournal};

use std::ops::RangeInclusive;

use super::id::Epoch;
use super::message::Spooled;

/// A store of messages by their sequence.
pub(super) trait Journal: Send {
    /// Appends and removes, all of it or nothing, and returns when it is safe.
    ///
    /// After an error it is not known which of the two it was, until [`Journal::reopen`]. One that
    /// is [`Displaced`](DiskErrorKind::Displaced) leaves the journal readable.
    fn commit(&mut self, appends: &[Spooled], removals: &[u64]) -> Result<(), DiskError>;

    /// The first messages of this range, about `bytes` of them and at least one.
    fn read(&self, range: RangeInclusive<u64>, bytes: usize) -> Result<Vec<Spooled>, DiskError>;

    /// Whether the file is in its place. Starts anew after an error.
    fn reopen(&mut self) -> Result<(), DiskError>;
}

/// What was found in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The name of the spool, drawn when the directory was made.
    pub(super) spool: u64,
    /// This opening.
    pub(super) epoch: Epoch,
    /// The sequences of the first and the last message.
    pub(super) range: Option<(u64, u64)>,
    /// How many messages there are.
    pub(super) messages: u64,
    /// Their size, as the core counts it.
    pub(super) bytes: u64,
}
