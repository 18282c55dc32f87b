//! How a spool ends.

use std::time::Duration;

use super::intake::{Answer, Arriving};
use super::{Core, Left, Stage};
use crate::error::PushError;
use crate::journal::DiskError;
use crate::message::Spooled;

impl Core {
    /// No more in; what is in is delivered, until the deadline.
    pub(crate) fn drain(&mut self, within: Option<Duration>) {
        if let Some(within) = within {
            let earlier = self.deadline_in.map_or(within, |other| other.min(within));
            self.deadline_in = Some(earlier);
        }
        self.stage = self.stage.max(Stage::Draining);
        self.wakes.driver = true;
        self.wakes.room = true;
    }

    /// Nothing is delivered any more. What was in flight counts as not written.
    pub(crate) fn stop(&mut self) {
        if self.stage >= Stage::Stopping {
            return;
        }
        self.stage = Stage::Stopping;
        for flight in std::mem::take(&mut self.flights) {
            for entry in flight.entries {
                match flight.is_letter {
                    true => self.halted.put_first(entry),
                    false => self.line.put(entry),
                }
            }
        }
        self.wakes.driver = true;
        self.wakes.room = true;
        self.wakes.journal = true;
        if !self.has_journal {
            self.end();
        }
    }

    /// The file of the journal is not in its place: the next opening does not find what is in it.
    pub(crate) fn displaced(&mut self, error: DiskError) {
        self.left.displaced = Some(error);
    }

    /// The journal is closed.
    pub(crate) fn end(&mut self) {
        if self.stage == Stage::Ended {
            return;
        }
        self.stage = Stage::Ended;
        let mut on_disk = self.tail.messages();
        let mut entries = Vec::new();
        for Arriving { entry, waiter } in std::mem::take(&mut self.arriving) {
            let Some(to) = waiter else {
                entries.push(entry);
                continue;
            };
            // The disk has failed before its turn came: it was not accepted.
            let result = Err(PushError::Closed(entry.message.into_message()));
            self.answers.push(Answer { to, result });
        }
        while let Some(entry) = self.line.pop().or_else(|| self.halted.pop_oldest()) {
            entries.push(entry);
        }
        entries.sort_unstable_by_key(|entry| entry.sequence());
        let first = entries.first().map(|entry| entry.sequence());
        let mut returned: Vec<Spooled> = Vec::new();
        for entry in entries {
            match entry.is_stored() && self.left.displaced.is_none() {
                true => on_disk += 1,
                false => returned.push(entry.message),
            }
        }
        self.left = Left {
            on_disk,
            in_memory: returned.len() as u64,
            returned,
            oldest: first.into_iter().chain(self.tail.first()).min(),
            displaced: self.left.displaced.take(),
        };
        self.wakes.driver = true;
        self.wakes.room = true;
        self.wakes.settled = true;
    }

    /// What is left; the messages themselves once.
    pub(crate) fn take_left(&mut self) -> Left {
        Left {
            returned: std::mem::take(&mut self.left.returned),
            displaced: self.left.displaced.clone(),
            ..self.left
        }
    }

    /// Whether nothing more can be delivered: there is nothing, or what there is waits for a
    /// decision of the user's.
    pub(super) fn is_stuck(&self) -> bool {
        self.line.is_empty()
            && self.flights.is_empty()
            && self.letters.is_empty()
            && self.arriving.is_empty()
            && !self.is_reading
            && !self.wants_page()
    }
}
