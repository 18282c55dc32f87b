//! Keys whose first message the sink has refused.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::entry::Entry;

/// The messages of halted keys, each key in its order. A key is halted while it has any here, or
/// while its first one is at the dead letters.
#[derive(Debug, Default)]
pub(crate) struct Halted {
    keys: HashMap<Bytes, Stop>,
    messages: usize,
}

#[derive(Debug)]
struct Stop {
    reason: Arc<str>,
    entries: VecDeque<Entry>,
    /// The first one was taken, and comes back or settles.
    is_first_out: bool,
}

impl Halted {
    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Returns each key, the reason, and how many of its messages wait in memory.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&Bytes, &Arc<str>, usize)> {
        self.keys
            .iter()
            .map(|(key, stop)| (key, &stop.reason, stop.entries.len()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.keys.values().flat_map(|stop| &stop.entries)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.keys.values_mut().flat_map(|stop| &mut stop.entries)
    }

    /// Stops the key of a refused message.
    pub(crate) fn halt(&mut self, first: Entry) -> Bytes {
        // A copy: a slice of the message would keep the memory of its payload.
        let key = Bytes::copy_from_slice(first.key());
        let stop = Stop {
            reason: first.refused.clone().unwrap_or_default(),
            entries: VecDeque::from([first]),
            is_first_out: false,
        };
        self.keys.insert(key.clone(), stop);
        self.messages += 1;
        key
    }

    /// Adds a later message to its halted key, or gives it back if that is not halted.
    pub(crate) fn add(&mut self, entry: Entry) -> Option<Entry> {
        if self.keys.is_empty() {
            return Some(entry);
        }
        let Some(stop) = self.keys.get_mut(entry.key()) else {
            return Some(entry);
        };
        stop.entries.push_back(entry);
        self.messages += 1;
        None
    }

    /// Returns whether the first message of this key is here, and was refused.
    pub(crate) fn is_refused(&self, key: &[u8]) -> bool {
        let first = self.keys.get(key).and_then(|stop| stop.entries.front());
        first.is_some_and(|entry| entry.refused.is_some())
    }

    /// Takes the first message of this key, which stays halted.
    pub(crate) fn take_first(&mut self, key: &[u8]) -> Option<Entry> {
        let stop = self.keys.get_mut(key)?;
        let entry = stop.entries.pop_front()?;
        stop.is_first_out = true;
        self.messages -= 1;
        Some(entry)
    }

    /// Puts the first message back.
    pub(crate) fn put_first(&mut self, entry: Entry) {
        if let Some(stop) = self.keys.get_mut(entry.key()) {
            stop.entries.push_front(entry);
            stop.is_first_out = false;
            self.messages += 1;
        }
    }

    /// Releases a key: returns all of its messages.
    pub(crate) fn release(&mut self, key: &[u8]) -> VecDeque<Entry> {
        let entries = self.keys.remove(key).map(|stop| stop.entries);
        let entries = entries.unwrap_or_default();
        self.messages -= entries.len();
        entries
    }

    /// Removes the oldest message of all. Its key stays halted while it has others.
    pub(crate) fn pop_oldest(&mut self) -> Option<Entry> {
        let fronts = self
            .keys
            .iter()
            .filter_map(|(key, stop)| Some((stop.entries.front()?.sequence(), key)));
        let (_, key) = fronts.min()?;
        let key = key.clone();
        let stop = self.keys.get_mut(&key)?;
        let entry = stop.entries.pop_front()?;
        if stop.entries.is_empty() && !stop.is_first_out {
            self.keys.remove(&key);
        }
        self.messages -= 1;
        Some(entry)
    }
}
