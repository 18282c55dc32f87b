//! Messages of which a handler has dropped its transaction.
//!
//! An attempt that fails may do so. One that returns `Ok` has lost what it wrote, and its message must
//! not be lost with that.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The token of the claim of a message, and its sequence.
pub(super) type Claimed = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    messages: Mutex<HashSet<Claimed>>,
    /// How many there are: hardly ever any.
    count: AtomicUsize,
}

impl Uncommitted {
    pub(super) fn add(&self, message: Claimed) {
        self.change(|messages| messages.insert(message));
    }

    /// Whether it was there.
    pub(super) fn remove(&self, message: Claimed) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.change(|messages| messages.remove(&message))
    }

    fn change(&self, change: impl FnOnce(&mut HashSet<Claimed>) -> bool) -> bool {
        let messages = self.messages.lock();
        let mut messages = messages.unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut messages);
        self.count.store(messages.len(), Ordering::Release);
        changed
    }
}
