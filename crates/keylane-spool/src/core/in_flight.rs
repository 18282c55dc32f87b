//! What is at the sink, or at the dead letters.

use std::collections::HashSet;

use bytes::Bytes;

use super::entry::Entry;

/// A batch or letter in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: u64,
    pub(super) entries: Vec<Entry>,
    /// Its keys, if other batches may start meanwhile.
    pub(super) keys: HashSet<Bytes>,
    /// It is one refused message, at the dead letters. Its key is halted.
    pub(super) is_letter: bool,
}
