//! A message in the queue, and the right to hand it out.

use std::hash::{Hash, Hasher};

use crate::engine::dropped;
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

/// What is the user's, and may panic in its `Drop` without consequence: the last owner of a message
/// may be a lane that is being removed, the task that keeps the time, or a worker that unwinds.
pub(super) struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn get(&self) -> &T {
        self.0.as_ref().expect("only its end takes the value out")
    }

    pub(super) fn into_inner(mut self) -> T {
        self.0.take().expect("only its end takes the value out")
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take()
            && std::mem::needs_drop::<T>()
            && dropped(value)
        {
            tracing::error!(target: "keylane", "a message or a key of a queue panicked in its drop");
        }
    }
}

impl<T: Clone> Clone for Quiet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Quiet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq> Eq for Quiet<T> {}

impl<T: Hash> Hash for Quiet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
