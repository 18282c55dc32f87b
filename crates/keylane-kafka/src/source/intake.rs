//! Handing over what was read of a partition.

use keylane::source::frontier::{DeliverError, Delivered};
use keylane::source::{Deliveries, Delivery};

use crate::assignment::{Assigned, Position};
use crate::client::{Fetched, Ownership, Prefetched};
use crate::control::Overtaken;

/// What a partition is read from.
pub(super) struct PartitionIntake<M> {
    pub(super) records: Prefetched<M>,
    /// Without it nothing is committed.
    pub(super) ownership: Ownership,
    /// What retention had taken of it before it was given to us.
    pub(super) overtaken: Option<Overtaken>,
    pub(super) is_paused: bool,
    /// The client was told a second time where it begins.
    pub(super) is_sought_again: bool,
    /// Why it could not be read, unless that was told.
    pub(super) unread: Option<String>,
}

/// Why no more was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// So many records were looked at. There may be more.
    Some(usize),
    /// The log goes on at a lower offset: it was cut off, or is another one.
    Back(u64),
    /// The client does not get over it.
    Failed(String),
}

impl<M> Assigned<PartitionIntake<M>> {
    /// Hands over up to so many records.
    pub(super) fn take(
        &mut self,
        slot: u32,
        most: usize,
        into: &mut Deliveries<M, Position>,
    ) -> Taken {
        let Self {
            partition,
            queue: intake,
            ..
        } = self;
        let mut looked = 0;
        while looked < most && into.room() > 0 && partition.takes() && !intake.is_paused {
            let (offset, message, size) = match intake.records.next() {
                None => break,
                Some(Fetched::Failed(what)) => return Taken::Failed(what),
                Some(Fetched::Unread(why)) => {
                    intake.unread = Some(why);
                    break;
                }
                Some(Fetched::Message(offset, message, size)) => (offset, message, size),
            };
            match partition.deliver(offset) {
                Ok(Delivered::Done) => {}
                Ok(Delivered::Open) => {
                    let generation = partition.generation;
                    let position = Position {
                        slot,
                        generation,
                        offset,
                    };
                    let delivery = Delivery::new(message, position).generation(generation);
                    into.push(delivery.bytes(size));
                }
                Err(DeliverError::OutOfOrder) => {
                    // The first one of what begins there.
                    intake.records.put_back(offset, message, size);
                    return Taken::Back(offset);
                }
                // Too many are open, or too far apart. As if there were none, so that the source waits
                // until something settles.
                Err(_) => {
                    intake.records.put_back(offset, message, size);
                    break;
                }
            }
            looked += 1;
        }
        Taken::Some(looked)
    }

    /// Whether what came from below its beginning is no sign of another log. The client may go to the
    /// first record of a log after it was told to begin behind it: it does so when the offset that it
    /// was given first is not there, and a reset that is under way is not dropped by a seek.
    pub(super) fn begins_again(&mut self) -> bool {
        let begins = !self.partition.has_begun() && !self.queue.is_sought_again;
        if begins {
            self.queue.is_sought_again = true;
            self.partition.read_again();
        }
        begins
    }
}
