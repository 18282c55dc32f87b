//! The end of a spool.

use std::time::Duration;

use super::arriving::{Answer, Arriving};
use super::{Core, Left, Stage};
use crate::error::PushError;
use crate::journal::DiskError;
use crate::message::Spooled;

impl Core {
    /// Accepts no more messages, and delivers the accepted ones until the deadline.
    pub(crate) fn drain(&mut self, within: Option<Duration>) {
        if let Some(within) = within {
            let earlier = self.deadline_in.map_or(within, |other| other.min(within));
            self.deadline_in = Some(earlier);
        }
        self.stage = self.stage.max(Stage::Draining);
        self.wakes.driver = true;
        self.wakes.room = true;
    }

    /// Stops delivery. Batches in flight count as not written.
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

    /// Records that the file of the journal is not in its place: the next opening does not find its
    /// messages.
    pub(crate) fn displaced(&mut self, error: DiskError) {
        self.left.displaced = Some(error);
    }

    /// Records that the journal is closed.
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
            // The disk failed before its turn: the message was not accepted.
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

    /// Returns the remaining messages; the messages themselves only once.
    pub(crate) fn take_left(&mut self) -> Left {
        Left {
            returned: std::mem::take(&mut self.left.returned),
            displaced: self.left.displaced.clone(),
            ..self.left
        }
    }

    /// Returns whether nothing more can be delivered: there is no message, or all of them wait for
    /// a decision of the user.
    pub(super) fn is_stuck(&self) -> bool {
        self.line.is_empty()
            && self.flights.is_empty()
            && self.letters.is_empty()
            && self.arriving.is_empty()
            && !self.is_reading
            && !self.wants_page()
    }
}
