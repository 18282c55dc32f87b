//! Hands over the records that were read of a partition.

use keylane_source::frontier::{DeliverError, Delivered};
use keylane_source::{Deliveries, Delivery};

use crate::control::Overtaken;
use crate::core::{Assigned, KafkaPosition};
use crate::link::{Fetched, Ownership, Prefetched};

/// The intake of a partition.
pub(super) struct PartitionIntake<M> {
    pub(super) records: Prefetched<M>,
    /// Nothing is committed after it has ended.
    pub(super) ownership: Ownership,
    /// The records that retention had deleted before the partition was assigned to us.
    pub(super) overtaken: Option<Overtaken>,
    pub(super) is_paused: bool,
    /// Whether the client was told a second time where it begins.
    pub(super) is_sought_again: bool,
    /// Why it could not be read, if that is not reported yet.
    pub(super) unread: Option<String>,
}

/// Why no more records were taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// This many records were looked at. There may be more.
    Some(usize),
    /// The client has gone to the first record of the log, and not to the start that it was told. A
    /// seek does not end a reset that is in progress because the committed offset is not in the
    /// log.
    Again,
    /// The log goes on at a lower offset: it was cut off, or is another one.
    Back(u64),
    /// The client does not recover from this failure.
    Failed(String),
}

impl<M> Assigned<PartitionIntake<M>> {
    /// Hands over at most this many records.
    pub(super) fn take(
        &mut self,
        slot: u32,
        most: usize,
        into: &mut Deliveries<M, KafkaPosition>,
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
                    let position = KafkaPosition {
                        slot,
                        generation,
                        offset,
                    };
                    let delivery = Delivery::new(message, position).generation(generation);
                    into.push(delivery.bytes(size));
                }
                Err(DeliverError::OutOfOrder) => {
                    // It is the first record of the partition that begins there.
                    intake.records.put_back(offset, message, size);
                    if partition.has_begun() || intake.is_sought_again {
                        return Taken::Back(offset);
                    }
                    intake.is_sought_again = true;
                    partition.read_again();
                    return Taken::Again;
                }
                // Too many are open, or they are too far apart. Behave as if there were none, so
                // that the source waits until a record settles.
                Err(_) => {
                    intake.records.put_back(offset, message, size);
                    break;
                }
            }
            looked += 1;
        }
        Taken::Some(looked)
    }
}
