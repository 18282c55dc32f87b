//! Messages of which a handler has dropped its transaction.
//!
//! An attempt that fails may do so. One that returns `Ok` has lost what it wrote, and its message
//! must not be lost with that.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A message in the hands of a source: the opening of the source, of which there is one in a
/// process, and the sequence.
pub(super) type InHand = (u64, u64);

/// Of all inboxes in this process: a handler may begin its transaction on another handle than its
/// source is of.
static MESSAGES: LazyLock<Mutex<HashSet<InHand>>> = LazyLock::new(Mutex::default);

/// How many there are: hardly ever any.
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn add(message: InHand) {
    change(|messages| messages.insert(message));
}

/// Whether it was there.
pub(super) fn remove(message: InHand) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && change(|messages| messages.remove(&message))
}

fn change(change: impl FnOnce(&mut HashSet<InHand>) -> bool) -> bool {
    let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = change(&mut messages);
    COUNT.store(messages.len(), Ordering::Release);
    changed
}
