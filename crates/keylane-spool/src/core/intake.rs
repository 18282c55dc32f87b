//! Decides whether a message is accepted.

use tokio::sync::oneshot;

use super::arriving::{Arriving, Waiter};
use super::entry::{Entry, Stored};
use super::{Core, Stage};
use crate::error::PushError;
use crate::id::MessageId;
use crate::journal::is_encodable;
use crate::message::{Message, Spooled};
use crate::policy::{AtLimit, Persist};
use crate::size::size_of;

/// The result of a push.
#[derive(Debug)]
pub(crate) enum Offer {
    Accepted,
    /// It is accepted when the journal has it.
    Storing(Waiter),
    /// There is no room now. Push waits.
    Busy(Message),
    Refused(PushError),
}

impl Core {
    /// Takes the message, if there is room. `is_first` means that the caller is the first of the
    /// waiting pushes.
    pub(crate) fn offer(&mut self, message: Message, is_first: bool) -> Offer {
        if self.stage != Stage::Open {
            return Offer::Refused(PushError::Closed(message));
        }
        if !is_encodable(&message.key, &message.headers) {
            return Offer::Refused(PushError::TooLarge(message));
        }
        let id = MessageId {
            spool: self.spool,
            epoch: self.epoch,
            sequence: self.next_sequence,
        };
        let message = Spooled::new(id, message);
        let size = size_of(&message);
        if size > self.settings.max_message {
            return Offer::Refused(PushError::TooLarge(message.into_message()));
        }
        let is_behind = !is_first && self.waiting > 0;
        if is_behind || !self.can_store(size) {
            return Offer::Busy(message.into_message());
        }
        while self.total + size as u64 > self.settings.capacity() {
            match self.settings.at_limit {
                AtLimit::Reject => {
                    return Offer::Refused(PushError::Full(message.into_message()));
                }
                AtLimit::Wait => return Offer::Busy(message.into_message()),
                AtLimit::DropOldest => {
                    if !self.drop_oldest() {
                        return Offer::Busy(message.into_message());
                    }
                }
            }
        }
        self.accept(Entry::new(message, Stored::No))
    }

    fn accept(&mut self, entry: Entry) -> Offer {
        self.next_sequence += 1;
        self.total += entry.size as u64;
        self.loose += usize::from(self.has_journal);
        let is_awaited = self.has_journal && self.settings.persist == Persist::Each;
        self.counts.accepted += u64::from(!is_awaited);
        let goes_first = self.arriving.is_empty() && self.tail.is_empty();
        if !self.has_journal || (!is_awaited && goes_first && self.has_memory_for(entry.size)) {
            self.admit(entry);
            self.wakes.driver |= self.is_worth_a_look();
            self.ask_for_sync();
            return Offer::Accepted;
        }
        self.arriving_bytes += entry.size;
        self.wakes.journal = true;
        if !is_awaited {
            self.arriving.push_back(Arriving {
                entry,
                waiter: None,
            });
            return Offer::Accepted;
        }
        let (to, waiter) = oneshot::channel();
        self.arriving.push_back(Arriving {
            entry,
            waiter: Some(to),
        });
        Offer::Storing(waiter)
    }

    /// Returns whether the journal keeps up.
    fn can_store(&mut self, size: usize) -> bool {
        if !self.has_journal {
            return true;
        }
        if let Persist::EveryMessages(most) = self.settings.persist
            && self.loose >= most
        {
            self.ask_for_sync();
            return false;
        }
        self.arriving.is_empty() || self.arriving_bytes + size <= self.settings.arriving()
    }

    fn ask_for_sync(&mut self) {
        match self.settings.persist {
            Persist::EveryMessages(most) if self.loose >= most.div_ceil(2) => {
                self.is_sync_due = true;
                self.wakes.journal = true;
            }
            Persist::Every(_) => self.wakes.driver |= self.sync_at.is_none(),
            _ => {}
        }
    }

    /// Records that a push begins to wait for room.
    pub(crate) fn begin_wait(&mut self) {
        self.waiting += 1;
    }

    /// Records that a push waits no more: it has room, or was dropped.
    pub(crate) fn end_wait(&mut self) {
        self.waiting -= 1;
        // The next one is first now, and there may be room for it.
        self.wakes.room = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tokio::time::Instant;

    use super::*;
    use crate::core::support::core;
    use crate::core::{Flight, Landing, Moment};

    /// Returns the sequences that are delivered of all messages pushed until there is no room,
    /// while the disk gives no answer, and the number of pushes.
    fn delivered_while_the_disk_is_busy(persist: Persist) -> (Vec<u64>, u64) {
        let mut core = core(persist);
        let mut pushed = 0;
        let mut waiters = Vec::new();
        loop {
            match core.offer(Message::new("a", vec![0; 100]), false) {
                Offer::Accepted => {}
                Offer::Storing(waiter) => waiters.push(waiter),
                _ => break,
            }
            pushed += 1;
        }
        let work = core.take_work();
        assert!(!work.appends.is_empty(), "it is at work");
        let at = Moment {
            now: Instant::now(),
            wall: SystemTime::UNIX_EPOCH,
            dice: 0.5,
        };
        let mut delivered = Vec::new();
        while let Some(Flight::Batch { id, batch }) = core.step(at.now).flights.pop() {
            delivered.extend(batch.iter().map(|message| message.id.sequence));
            core.land(id, Landing::Written, at);
        }
        (delivered, pushed)
    }

    #[test]
    fn delivery_waits_for_the_disk_only_where_a_push_does() {
        for persist in [Persist::None, Persist::Every(Duration::from_secs(1))] {
            let (delivered, pushed) = delivered_while_the_disk_is_busy(persist);
            // More than fits: half of the memory is for what may be delivered.
            assert!(pushed > 4_096 / 243, "{pushed}");
            assert_eq!(delivered, Vec::from_iter(1..=pushed), "{persist:?}");
        }
        let (delivered, _) = delivered_while_the_disk_is_busy(Persist::Each);
        assert_eq!(delivered, []);
    }
}
