//! The position of a delivery.

use keylane_source::Generation;

use super::id::EntryId;

/// One hand-out of an entry of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// The index of the stream in the source.
    pub(super) stream: u32,
    /// Earlier attempts that the server knows.
    pub(super) attempts: u32,
    /// Attempts up to this one may start without a note.
    pub(super) free: u32,
    pub(super) generation: Generation,
    pub(super) id: EntryId,
}

impl StreamPosition {
    /// Returns the id of the entry in its stream.
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// Returns the index of its stream, in the order in which the streams of the source were named.
    pub fn stream(&self) -> usize {
        self.stream as usize
    }
}
