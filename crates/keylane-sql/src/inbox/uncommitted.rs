//! Messages whose handler has dropped its transaction.
//!
//! An attempt that fails may do so. An attempt that returns `Ok` has lost its writes, and its
//! message must not be lost as well.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use keylane_connector::lock;

/// A message that a source has handed over: the opening of the source, which is unique in a
/// process, and the sequence.
pub(super) type InHand = (u64, u64);

/// The messages of all inboxes in this process: a handler may begin its transaction on another
/// handle than that of its source.
static MESSAGES: LazyLock<Mutex<HashSet<InHand>>> = LazyLock::new(Mutex::default);

/// How many there are: almost always 0.
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn add(message: InHand) {
    change(|messages| messages.insert(message));
}

/// Removes a message. Returns whether it was there.
pub(super) fn remove(message: InHand) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && change(|messages| messages.remove(&message))
}

fn change(change: impl FnOnce(&mut HashSet<InHand>) -> bool) -> bool {
    let mut messages = lock(&MESSAGES);
    let changed = change(&mut messages);
    COUNT.store(messages.len(), Ordering::Release);
    changed
}
