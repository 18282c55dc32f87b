//! What a source has counted.

use std::sync::{Arc, Mutex, PoisonError};

/// What a source has counted so far, over all its streams.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Streams that it owns now.
    pub owned: u64,
    /// How often a stream came to it.
    pub gained: u64,
    /// How often a stream went, by a rebalance or a loss. Not those that went with an error of the
    /// connection, or at the end.
    pub gone: u64,
    /// Pending entries that were deleted or cut off before they were handled. They are acked away.
    pub bodiless: u64,
    /// How often a stream was lost because it, its group or the consumer in it was removed or made
    /// again, or because its server has another history: a replica was promoted, or a node was
    /// started anew.
    pub changed: u64,
    /// Acks that came when another process owned the stream already, or when the stream had
    /// changed, or that the server has refused. Their messages may come again.
    pub refused: u64,
    /// Entries that were cut off because all groups had acked them.
    pub trimmed: u64,
    /// How often entries were found that a former owner had taken after the take-over.
    pub strays: u64,
}

/// A handle: clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters(Arc<Mutex<StreamCounts>>);

impl Counters {
    pub(super) fn add(&self, add: impl FnOnce(&mut StreamCounts)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn get(&self) -> StreamCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The view into a source from outside. See [`StreamSource::watch`](crate::StreamSource::watch).
#[derive(Clone, Debug)]
pub struct StreamWatch(pub(super) Counters);

impl StreamWatch {
    /// What was counted so far.
    pub fn counts(&self) -> StreamCounts {
        self.0.get()
    }
}
