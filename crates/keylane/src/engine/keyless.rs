//! Messages without a lane that wait for their next attempt.

use super::message::Held;
use crate::rt::{Mutex, NumberMap, lock};

/// What a lane is to a head in backoff, for messages that have none.
#[derive(Debug)]
pub(super) struct Keyless<K, M, O, E>(Mutex<Waiting<K, M, O, E>>);

#[derive(Debug)]
struct Waiting<K, M, O, E> {
    next: u64,
    held: NumberMap<u64, Held<K, M, O, E>>,
}

impl<K, M, O, E> Keyless<K, M, O, E> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Waiting {
            next: 0,
            held: NumberMap::new(),
        }))
    }

    /// Keeps a message, and returns its number.
    pub(super) fn insert(&self, held: Held<K, M, O, E>) -> u64 {
        let mut waiting = lock(&self.0);
        waiting.next += 1;
        let number = waiting.next;
        waiting.held.insert(number, held);
        number
    }

    pub(super) fn take(&self, number: u64) -> Option<Held<K, M, O, E>> {
        lock(&self.0).held.remove(&number)
    }

    pub(super) fn peek<R>(
        &self,
        number: u64,
        see: impl FnOnce(&Held<K, M, O, E>) -> R,
    ) -> Option<R> {
        lock(&self.0).held.get(&number).map(see)
    }

    pub(super) fn take_all(&self) -> Vec<Held<K, M, O, E>> {
        let held = std::mem::take(&mut lock(&self.0).held);
        held.into_values().collect()
    }
}
