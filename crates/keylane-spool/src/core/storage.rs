//! The writes, removals and reads of the journal.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::SystemTime;

use super::arriving::Answer;
use super::entry::{Entry, Stored};
use super::fault::Fault;
use super::{Core, Stage};
use crate::error::PushError;
use crate::journal::DiskError;
use crate::message::Spooled;
use crate::policy::Persist;

/// The most messages and bytes of one commit. More messages wait for the next one.
const COMMIT_MESSAGES: usize = 16_384;
const COMMIT_BYTES: usize = 8 * 1024 * 1024;

/// The most messages of a commit while the disk fails, to find out whether it works again. The
/// spool must remember the possible remains of a failed commit.
const PROBE_MESSAGES: usize = 1;

/// So many removals start a commit of their own.
const MOST_REMOVALS: usize = 4_096;

/// How soon the writer is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    /// There are removals. They wait a little, for a commit to join.
    Soon,
    Now,
}

/// One commit, and then one read.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) appends: Vec<Spooled>,
    pub(crate) removals: Vec<u64>,
    pub(crate) read: Option<(RangeInclusive<u64>, usize)>,
    /// There is no more, and the journal can be closed.
    pub(crate) is_last: bool,
}

impl Core {
    pub(crate) fn wants(&self) -> Wants {
        let has_arrived = self
            .arriving
            .back()
            .is_some_and(|arriving| !arriving.entry.is_stored());
        if has_arrived
            || self.is_sync_due
            || self.removals.len() >= MOST_REMOVALS
            || self.stage == Stage::Stopping
            || self.wants_page()
        {
            Wants::Now
        } else if self.removals.is_empty() {
            Wants::Nothing
        } else {
            Wants::Soon
        }
    }

    /// Takes the next work. The writer must answer with [`committed`](Self::committed) or
    /// [`commit_failed`](Self::commit_failed), and for a page with [`page`](Self::page) or
    /// [`page_failed`](Self::page_failed).
    pub(crate) fn take_work(&mut self) -> Work {
        if self.is_given_up {
            return Work {
                is_last: true,
                ..Work::default()
            };
        }
        let appends = self.take_appends();
        let removals = std::mem::take(&mut self.removals);
        let read = self.wants_page().then(|| {
            self.is_reading = true;
            let room = self.settings.window().saturating_sub(self.resident);
            (self.tail.range(), room)
        });
        Work {
            is_last: self.stage == Stage::Stopping && appends.is_empty() && removals.is_empty(),
            appends,
            removals,
            read,
        }
    }

    pub(super) fn wants_page(&self) -> bool {
        let window = self.settings.window();
        let is_hungry = self.resident <= window / 2
            || (self.line.is_empty() && self.batches() == 0 && self.resident < window);
        !self.tail.is_empty() && !self.is_reading && is_hungry && self.stage < Stage::Stopping
    }

    /// Takes the messages to store, in their order, and marks them as stored.
    fn take_appends(&mut self) -> Vec<Spooled> {
        let is_kept_in_memory = self.settings.persist == Persist::None;
        let is_due = self.is_sync_due || self.stage == Stage::Stopping;
        let takes_all = is_due || (!is_kept_in_memory && !self.arriving.is_empty());
        let mut candidates: Vec<&mut Entry> = Vec::new();
        if takes_all {
            let after = if is_kept_in_memory {
                0
            } else {
                self.durable_upto
            };
            let line = self.line.after(after).filter(|entry| !entry.is_stored());
            candidates.extend(line.take(COMMIT_MESSAGES));
            let flying = self
                .flights
                .iter_mut()
                .flat_map(|flight| &mut flight.entries);
            candidates.extend(
                flying
                    .chain(self.halted.iter_mut())
                    .filter(|entry| !entry.is_stored()),
            );
            candidates.sort_unstable_by_key(|entry| entry.sequence());
        }
        // These are younger than all others.
        let arriving = self.arriving.iter_mut().map(|arriving| &mut arriving.entry);
        candidates.extend(
            arriving
                .filter(|entry| !entry.is_stored())
                .take(COMMIT_MESSAGES),
        );
        let count = candidates.len();
        let most = match self.disk_fault {
            Some(_) => PROBE_MESSAGES,
            None => COMMIT_MESSAGES,
        };
        let mut bytes = 0;
        let mut appends = Vec::with_capacity(count.min(COMMIT_MESSAGES));
        for entry in candidates {
            bytes += entry.size;
            if appends.len() >= most || (bytes > COMMIT_BYTES && !appends.is_empty()) {
                break;
            }
            entry.stored = Stored::Yes;
            appends.push(entry.message.clone());
        }
        if appends.len() == count && count < COMMIT_MESSAGES {
            self.is_sync_due = false;
        }
        appends
    }

    /// Records that the work is safe on the disk.
    pub(crate) fn committed(&mut self, work: &Work) {
        self.disk_fault = None;
        self.counts.removed += work.removals.len() as u64;
        self.unconfirmed -= work.removals.len() as u64;
        self.wakes.settled = true;
        self.wakes.driver |= self.stage == Stage::Draining;
        let Some(last) = work.appends.last() else {
            return;
        };
        self.durable_upto = self.durable_upto.max(last.id.sequence);
        while let Some(arriving) = self
            .arriving
            .pop_front_if(|arriving| arriving.entry.sequence() <= self.durable_upto)
        {
            self.arriving_bytes -= arriving.entry.size;
            if let Some(to) = arriving.waiter {
                self.counts.accepted += 1;
                self.answers.push(Answer { to, result: Ok(()) });
            }
            if self.tail.is_empty() && self.has_memory_for(arriving.entry.size) {
                self.admit(arriving.entry);
            } else {
                self.tail.push(arriving.entry.sequence());
            }
        }
        self.count_loose();
        self.wakes.room = true;
        self.wakes.driver |= self.is_worth_a_look();
    }

    /// Records a failed commit: it is not known whether any of its work is on the disk. A message
    /// that a push waits for goes back to the push; all others stay and are stored later.
    pub(crate) fn commit_failed(&mut self, work: Work, error: &DiskError, wall: SystemTime) {
        let failed: HashSet<u64> = work
            .appends
            .iter()
            .map(|message| message.id.sequence)
            .collect();
        let flying = self
            .flights
            .iter_mut()
            .flat_map(|flight| &mut flight.entries);
        let arriving = self.arriving.iter_mut().map(|arriving| &mut arriving.entry);
        let in_memory = flying
            .chain(self.halted.iter_mut())
            .chain(self.line.iter_mut());
        for entry in in_memory.chain(arriving) {
            if failed.contains(&entry.sequence()) {
                entry.stored = Stored::Perhaps;
            }
        }
        let later = std::mem::replace(&mut self.removals, work.removals);
        self.removals.extend(later);
        self.is_sync_due |= self.settings.persist != Persist::None && !failed.is_empty();
        self.give_back(&failed, error);
        self.count_loose();
        if work.read.is_some() {
            self.is_reading = false;
        }
        let fault = self.disk_fault.get_or_insert_with(|| Fault {
            since: wall,
            error: error.clone(),
        });
        fault.error = error.clone();
        self.wakes.driver |= self.stage == Stage::Draining;
        // Another try would not help, and the report waits for it.
        self.is_given_up = self.stage == Stage::Stopping;
    }

    fn give_back(&mut self, failed: &HashSet<u64>, error: &DiskError) {
        let arriving = std::mem::take(&mut self.arriving);
        for mut arriving in arriving {
            let sequence = arriving.entry.sequence();
            match arriving.waiter.take() {
                Some(to) => {
                    let Entry { message, size, .. } = arriving.entry;
                    self.total -= size as u64;
                    self.arriving_bytes -= size;
                    if failed.contains(&sequence) {
                        // It may be on the disk all the same.
                        self.removals.push(sequence);
                        self.unconfirmed += 1;
                    }
                    let result = Err(PushError::Disk(message.into_message(), error.clone()));
                    self.answers.push(Answer { to, result });
                }
                None => self.arriving.push_back(arriving),
            }
        }
        self.wakes.room = true;
        self.wakes.settled = true;
    }

    fn count_loose(&mut self) {
        let upto = self.durable_upto;
        let is_loose = |entry: &&Entry| entry.sequence() > upto;
        let apart = self.flying().chain(self.halted.iter()).filter(is_loose);
        self.loose = apart.count() + self.line.count_after(upto) + self.arriving.len();
    }

    /// Takes a page of messages that were only on the disk.
    pub(crate) fn page(&mut self, messages: Vec<Spooled>) {
        self.is_reading = false;
        self.page_fault = None;
        if let Some(last) = messages.last() {
            self.tail.read(messages.len() as u64, last.id.sequence);
        }
        for message in messages {
            self.admit(Entry::new(message, Stored::Yes));
        }
        self.admit_arrived();
        // The oldest can be dropped again.
        self.wakes.room = true;
        self.wakes.driver = true;
        self.wakes.settled = true;
    }

    /// Keeps the messages of a failed page where they are: no later message is delivered before
    /// them.
    pub(crate) fn page_failed(&mut self, error: &DiskError, wall: SystemTime) {
        self.is_reading = false;
        let fault = self.page_fault.get_or_insert_with(|| Fault {
            since: wall,
            error: error.clone(),
        });
        fault.error = error.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::support::core;
    use crate::core::{Offer, Waiter};
    use crate::journal::DiskErrorKind;
    use crate::message::Message;

    fn push(core: &mut Core) -> Waiter {
        match core.offer(Message::new("a", vec![0; 50]), false) {
            Offer::Storing(waiter) => waiter,
            other => panic!("{other:?}"),
        }
    }

    fn answer(core: &mut Core) {
        for answer in core.take_effects().1 {
            answer.to.send(answer.result).unwrap();
        }
    }

    /// However long the disk fails, and however many pushes get the error, the spool remembers
    /// little of them.
    #[test]
    fn a_disk_that_fails_is_tried_with_one_message() {
        let mut core = core(Persist::Each);
        let error = DiskError::new(DiskErrorKind::Full, "spool.redb".as_ref(), "planned");
        for (round, stored) in [5, 1, 1, 1].into_iter().enumerate() {
            let waiters: Vec<_> = (0..5).map(|_| push(&mut core)).collect();
            let work = core.take_work();
            assert_eq!(work.appends.len(), stored, "round {round}");
            core.commit_failed(work, &error, SystemTime::UNIX_EPOCH);
            answer(&mut core);
            for mut waiter in waiters {
                assert!(matches!(waiter.try_recv(), Ok(Err(PushError::Disk(..)))));
            }
        }
        assert_eq!((core.removals.len(), core.total), (8, 0));
        // It works again, which the first message finds out.
        let waiters: Vec<_> = (0..5).map(|_| push(&mut core)).collect();
        for stored in [1, 4] {
            let work = core.take_work();
            assert_eq!(work.appends.len(), stored);
            core.committed(&work);
        }
        answer(&mut core);
        for mut waiter in waiters {
            assert!(matches!(waiter.try_recv(), Ok(Ok(()))));
        }
        assert!(core.removals.is_empty());
    }
}
