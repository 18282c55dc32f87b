//! Taking records out of the queue of a partition.

use keylane::source::frontier::{DeliverError, Delivered};
use keylane::source::{Deliveries, Delivery};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use std::time::Duration;

use crate::assignment::{Assigned, Position};
use crate::client::Queue;
use crate::record::Maker;

/// What a partition is read from.
pub(super) struct PartitionIntake<M> {
    pub(super) queue: Queue,
    /// `topic/number`, as it is in the ids of records.
    pub(super) name: Box<str>,
    /// The record that did not go in, because too many are open.
    pub(super) held_back: Option<(u64, M)>,
    pub(super) is_paused: bool,
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

impl<M> PartitionIntake<M> {
    pub(super) fn new(queue: Queue, topic: &str, number: i32) -> Self {
        Self {
            queue,
            name: format!("{topic}/{number}").into(),
            held_back: None,
            is_paused: false,
        }
    }
}

impl<M> Assigned<PartitionIntake<M>> {
    /// Hands over up to so many records.
    pub(super) fn take(
        &mut self,
        slot: u32,
        most: usize,
        maker: &mut Maker<M>,
        into: &mut Deliveries<M, Position>,
    ) -> Taken {
        let Self {
            partition,
            queue: intake,
            ..
        } = self;
        let mut looked = 0;
        while looked < most && partition.takes() && !intake.is_paused {
            let (offset, held_back, polled) = match intake.held_back.take() {
                Some((offset, message)) => (offset, Some(message), None),
                None => match intake.queue.poll(Duration::ZERO) {
                    None => break,
                    Some(Err(error)) => match failure(&intake.name, &error) {
                        Some(what) => return Taken::Failed(what),
                        None => break,
                    },
                    Some(Ok(record)) => {
                        let offset = record.offset().max(0).unsigned_abs();
                        (offset, None, Some(record))
                    }
                },
            };
            looked += 1;
            let name = &*intake.name;
            let message = |maker: &mut Maker<M>| {
                let make = || polled.map(|record| maker.make(name, &record));
                held_back.or_else(make)
            };
            match partition.deliver(offset) {
                Ok(Delivered::Done) => {}
                Ok(Delivered::Open) => {
                    let Some(message) = message(maker) else {
                        break;
                    };
                    let generation = partition.generation;
                    let position = Position {
                        slot,
                        generation,
                        offset,
                    };
                    into.push(Delivery::new(message, position).generation(generation));
                }
                Err(DeliverError::OutOfOrder) => {
                    // The first one of what begins there.
                    intake.held_back = message(maker).map(|message| (offset, message));
                    return Taken::Back(offset);
                }
                // Too many are open, or too far apart.
                Err(_) => {
                    intake.held_back = message(maker).map(|message| (offset, message));
                    // As if there were none, so that the source waits until something settles.
                    looked -= 1;
                    break;
                }
            }
        }
        Taken::Some(looked)
    }
}

/// What is to be said of an error of a partition, if the client does not get over it.
fn failure(name: &str, error: &KafkaError) -> Option<String> {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::InvalidMessage,
        ) => Some(format!("partition {name} cannot be read: {error}")),
        _ => {
            tracing::warn!(target: "keylane", partition = name, %error, "a partition cannot be read now");
            None
        }
    }
}
