//! The state of the reference server, as a test sees it.

use keylane::source::RawMessage;

/// One message at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The partition.
    pub partition: u32,
    /// The place in the partition, from 0.
    pub offset: u64,
    /// The published message.
    pub message: RawMessage,
    /// The state of the message.
    pub standing: MessageState,
    /// Attempts that have started, if the server counts them.
    pub attempts: u32,
    /// How often it was handed over.
    pub deliveries: u32,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// It waits to be handed over.
    Ready,
    /// It was handed over, and is not settled.
    Held,
    /// It was given back to a server that does not take it in this generation.
    Returned,
    /// It was settled, but the server forgets that if it dies now.
    Settled(Fate),
    /// It was settled, for ever.
    Confirmed(Fate),
}

impl MessageState {
    /// Returns whether it was settled.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Settled(_) | Self::Confirmed(_))
    }
}

/// How a message was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was handled.
    Done,
    /// Its dead letter was durable.
    DeadLettered,
    /// A policy discarded it.
    Discarded,
}

/// A dead letter that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptLetter {
    /// The message.
    pub message: RawMessage,
    /// How often its handler was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub why: String,
}

/// Counts of events at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Sessions that were opened.
    pub opened: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Settlements for a generation or a delivery that was over. A well-behaved server ignores
    /// them.
    pub stale: u64,
    /// Settlements for messages that were settled already.
    pub repeated: u64,
    /// Calls of `confirm`.
    pub confirms: u64,
    /// Deliveries whose lease was extended.
    pub extended: u64,
    /// Attempts that the [`StartGuard`](keylane::source::StartGuard) was told of.
    pub starts: u64,
    /// The most deliveries that were held at one moment.
    pub most_held: usize,
}
