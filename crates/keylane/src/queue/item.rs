//! A message in the queue, and the right to hand it out.

use crate::engine::Quiet;
use crate::rt::Arc;

/// A message, beside its key.
pub(super) struct Item<K, M> {
    pub(super) key: Quiet<K>,
    pub(super) hash: u64,
    pub(super) message: Quiet<M>,
}

/// The head of a key, and how often it was handed out.
pub(super) struct Turn<K, M> {
    pub(super) item: Arc<Item<K, M>>,
    pub(super) attempts: u32,
}

impl<K, M> Turn<K, M> {
    /// For a message that has just become the head of its key.
    pub(super) fn new(item: Arc<Item<K, M>>) -> Self {
        Self { item, attempts: 0 }
    }
}

/// A head that waits in its lane to be tried again.
pub(super) struct Waiting<K, M> {
    pub(super) turn: Turn<K, M>,
    /// Where its time is in the desk, together with the time.
    pub(super) number: u64,
}
