//! Keys that wait for a decision of the user's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::entry::Entry;

/// The messages of halted keys, each key in its order. A key is halted while it has any.
#[derive(Debug, Default)]
pub(in crate::spool) struct Halted {
    keys: HashMap<Bytes, Stop>,
    messages: usize,
}

#[derive(Debug)]
struct Stop {
    reason: Arc<str>,
    entries: VecDeque<Entry>,
}

impl Halted {
    pub(in crate::spool) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(in crate::spool) fn messages(&self) -> usize {
        self.messages
    }

    /// Each key, why it is halted, and how many of its messages wait in memory.
    pub(in crate::spool) fn list(&self) -> impl Iterator<Item = (&Bytes, &Arc<str>, usize)> {
        self.keys
            .iter()
            .map(|(key, stop)| (key, &stop.reason, stop.entries.len()))
    }

    pub(in crate::spool) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.keys.values().flat_map(|stop| &stop.entries)
    }

    pub(in crate::spool) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.keys.values_mut().flat_map(|stop| &mut stop.entries)
    }

    /// Stops the key of these entries, which are in their order and not empty.
    pub(in crate::spool) fn halt(&mut self, reason: Arc<str>, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        // A copy: a slice of the message would keep the memory of its payload.
        let key = Bytes::copy_from_slice(first.key());
        self.messages += entries.len();
        let stop = self.keys.entry(key).or_insert_with(|| Stop {
            reason,
            entries: VecDeque::new(),
        });
        stop.entries.extend(entries);
    }

    /// Adds a later message to its halted key, or gives it back if that is not halted.
    pub(in crate::spool) fn add(&mut self, entry: Entry) -> Option<Entry> {
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

    /// Lets a key go: all of its messages.
    pub(in crate::spool) fn release(&mut self, key: &[u8]) -> VecDeque<Entry> {
        let entries = self.keys.remove(key).map(|stop| stop.entries);
        let entries = entries.unwrap_or_default();
        self.messages -= entries.len();
        entries
    }

    /// The oldest message of all. Its key stays halted while it has others.
    pub(in crate::spool) fn pop_oldest(&mut self) -> Option<Entry> {
        let front = |stop: &Stop| stop.entries.front().map(Entry::sequence);
        let oldest = self.keys.iter().min_by_key(|(_, stop)| front(stop))?;
        let key = oldest.0.clone();
        let stop = self.keys.get_mut(&key)?;
        let entry = stop.entries.pop_front();
        if stop.entries.is_empty() {
            self.keys.remove(&key);
        }
        self.messages -= usize::from(entry.is_some());
        entry
    }
}
