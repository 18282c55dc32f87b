//! What names a record to its source.

use keylane_source::Generation;

/// The position of a record for its source: a partition in one generation, and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KafkaPosition {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
    pub(crate) offset: u64,
}

impl KafkaPosition {
    /// The offset of the record in its partition.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}
