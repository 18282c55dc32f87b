//! The accepted messages on the disk that are not delivered.

// The core decides what is written and removed. The writer, a thread of its own, takes all
// available work, commits it at once, and tells the core. `Journal` is the interface of the writer
// to a store, and `RedbJournal` is the store. `DiskError` is the error of all of them.

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
    /// Appends and removes all of it or nothing, and returns when it is safe.
    ///
    /// After an error it is not known which of the two happened, until [`Journal::reopen`]. A
    /// [`Displaced`](DiskErrorKind::Displaced) error leaves the journal readable.
    fn commit(&mut self, appends: &[Spooled], removals: &[u64]) -> Result<(), DiskError>;

    /// Reads the first messages of this range, about `bytes` of them and at least one.
    fn read(&self, range: RangeInclusive<u64>, bytes: usize) -> Result<Vec<Spooled>, DiskError>;

    /// Checks that the file is in its place. Starts anew after an error.
    fn reopen(&mut self) -> Result<(), DiskError>;
}

/// The content of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The name of the spool, drawn when the directory was created.
    pub(super) spool: u64,
    /// This opening.
    pub(super) epoch: Epoch,
    /// The sequences of the first and the last message.
    pub(super) range: Option<(u64, u64)>,
    /// How many messages there are.
    pub(super) messages: u64,
    /// Their size, by the rules of the core.
    pub(super) bytes: u64,
}
