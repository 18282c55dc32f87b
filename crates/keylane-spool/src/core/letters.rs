//! Refused messages on their way to the dead letters: one at a time, beside the batches.

use std::collections::HashSet;

use bytes::Bytes;

use super::delivery::{Flight, Landing};
use super::entry::Entry;
use super::health::Change;
use super::moment::Moment;
use super::{Core, Stage};
use crate::message::Spooled;
use crate::refused::Refused;

impl Core {
    /// Takes refused messages, each the first of its key, and the later ones of their keys out of
    /// the line. So they delay no other key, however long they wait.
    pub(super) fn set_aside(&mut self, refused: Vec<Entry>) {
        let keys: HashSet<Bytes> = refused.iter().map(|entry| entry.key().clone()).collect();
        let later = self.line.take_keys(&keys);
        for entry in refused {
            let key = self.halted.halt(entry);
            if !self.settings.halts {
                self.letters.push_back(key);
            }
        }
        for entry in later {
            self.halted.add(entry);
        }
        // A flush may wait only for them.
        self.wakes.settled = true;
    }

    /// Returns the next letter, if one can go.
    pub(super) fn next_letter(&mut self) -> Option<Flight> {
        let is_out = self.flights.iter().any(|flight| flight.is_letter);
        if is_out || self.letters_health.retry_at().is_some() || self.stage >= Stage::Stopping {
            return None;
        }
        while let Some(key) = self.letters.pop_front() {
            if !self.halted.is_refused(&key) {
                // The refused message was dropped at the limit.
                self.release(&key);
                continue;
            }
            let entry = self.halted.take_first(&key)?;
            let reason = entry.refused.as_ref().map(ToString::to_string);
            let letter = Refused {
                message: entry.message.clone(),
                reason: reason.unwrap_or_default(),
            };
            // The key needs no mark: it is halted.
            let id = self.take_off(vec![entry], HashSet::new(), true);
            return Some(Flight::Letter { id, letter });
        }
        None
    }

    /// Takes the result of a letter.
    pub(super) fn land_letter(&mut self, entry: Entry, landing: Landing, at: Moment) -> Change {
        match landing {
            Landing::Written => {
                self.counts.dead_lettered += 1;
                self.settle(&entry);
                self.release(entry.key());
                self.letters_health.works()
            }
            Landing::Failed { error, .. } => {
                self.counts.failures += 1;
                self.letters.push_front(entry.key().clone());
                self.halted.put_first(entry);
                self.letters_health.fails(error, false, at)
            }
        }
    }

    /// Releases a key.
    fn release(&mut self, key: &[u8]) {
        let entries = self.halted.release(key);
        self.wakes.driver |= !entries.is_empty();
        self.line.put_all(entries);
    }
}

// Decisions of a user. With dead letters there is nothing to decide.
impl Core {
    /// Lets a halted key go on with the refused message. Returns false if it is not halted.
    pub(crate) fn resume(&mut self, key: &[u8]) -> bool {
        if !self.settings.halts {
            return false;
        }
        let mut entries = self.halted.release(key);
        let was_halted = !entries.is_empty();
        for entry in &mut entries {
            entry.refused = None;
        }
        self.line.put_all(entries);
        self.wakes.driver |= was_halted;
        was_halted
    }

    /// Lets a halted key go on without the refused message.
    pub(crate) fn skip(&mut self, key: &[u8]) -> Option<Spooled> {
        if !self.settings.halts {
            return None;
        }
        let mut entries = self.halted.release(key);
        let first = entries.pop_front()?;
        self.line.put_all(entries);
        self.counts.skipped += 1;
        self.settle(&first);
        self.wakes.driver = true;
        Some(first.message)
    }
}
