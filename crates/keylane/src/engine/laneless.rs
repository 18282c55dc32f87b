//! Messages without a lane that wait for their next attempt, or for their source to take them back.

use keylane_rt::{Mutex, NumberMap, lock};

use super::message::Held;
use crate::types::Types;

/// Holds jobs without a lane until they are tried again, or handed back.
pub(super) struct Laneless<T: Types>(Mutex<HeldJobs<T>>);

struct HeldJobs<T: Types> {
    next: u64,
    held: NumberMap<u64, Held<T>>,
}

impl<T: Types> Laneless<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HeldJobs {
            next: 0,
            held: NumberMap::default(),
        }))
    }

    /// Keeps a message, and returns its number.
    pub(super) fn insert(&self, held: Held<T>) -> u64 {
        let mut waiting = lock(&self.0);
        waiting.next += 1;
        let number = waiting.next;
        waiting.held.insert(number, held);
        number
    }

    pub(super) fn take(&self, number: u64) -> Option<Held<T>> {
        lock(&self.0).held.remove(&number)
    }

    pub(super) fn peek<R>(&self, number: u64, see: impl FnOnce(&Held<T>) -> R) -> Option<R> {
        lock(&self.0).held.get(&number).map(see)
    }

    /// Takes out those that are chosen.
    pub(super) fn extract(&self, chosen: impl Fn(&Held<T>) -> bool) -> Vec<Held<T>> {
        let mut waiting = lock(&self.0);
        let numbers = waiting.held.iter().filter(|(_, held)| chosen(held));
        let numbers: Vec<_> = numbers.map(|(number, _)| *number).collect();
        let taken = numbers
            .into_iter()
            .map(|number| waiting.held.remove(&number));
        taken.flatten().collect()
    }

    pub(super) fn take_all(&self) -> Vec<Held<T>> {
        let held = std::mem::take(&mut lock(&self.0).held);
        held.into_values().collect()
    }
}
