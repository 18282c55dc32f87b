#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! Messages that must be acknowledged: what a source is, and what it hands over.
//!
//! A *source* is where messages come from with the obligation to settle them: a log, a queue, a
//! table, an inbox. A [`Source`] is written once per system. `Dispatcher::consume` runs it and
//! returns an `Intake`, which the application keeps.
//!
//! ```text
//!            receive                     place                       handler
//!  source ────────────►  driver (a task) ──────► lanes of the dispatcher ──────►
//!     ▲                       │      ▲                                      │
//!     └──── settle, confirm ──┘      └──── slot and outcome, in batches ────┘
//! ```
//!
//! # The words
//!
//! | word | meaning |
//! | --- | --- |
//! | delivery | one message that a source has handed over, with its position |
//! | position | what names a delivery to its source: partition and offset, row id, delivery tag |
//! | held | delivered and not settled |
//! | deferred | held, beside a full lane, as a position only: it is read again when there is room |
//! | ack | the source is told that a message is handled, or that its dead letter is durable |
//! | nack | the source is told to take a message back |
//! | generation | a period of owning a partition, connection or lease; a position has exactly one |
//! | revoke | the end of a generation while work of it is here |
//! | part | a part of a source that can fail while the rest goes on: a partition, stream or table |
//! | frontier | of a partition: everything below it is settled |
//!
//! # What is guaranteed
//!
//! 1. A delivery is acked only after its handler succeeded, or its dead letter is durable, or a
//!    policy that you have named gave it up: `expire_after`, `Overflow::DropOldest`,
//!    `OnExhausted::Discard`, an operator's `skip` or `purge`. One that was coalesced is acked with
//!    the one that stands for it.
//! 2. After a revoke, messages that have not started are given back without an attempt. Messages in
//!    flight may finish until `revoke_within` has passed, and are then dropped; they are dropped at
//!    once if another process may have the message. A message that comes again waits in its lane
//!    until the old attempt has ended.
//! 3. The outcome of a message whose generation is over is counted, and the source is not told of
//!    it.
//! 4. A message that comes again after a crash or a revoke was in flight, or done and not yet
//!    confirmed.
//! 5. A source hands over no more than `held` messages that are not settled. Messages of a full
//!    lane wait beside it, and do not stop the others before that limit is reached. A source that
//!    can read a position again goes on beyond it: most of those messages are `deferred`.
//! 6. A source that neither hands over anything nor says that it is idle is found by a watchdog and
//!    opened again.
//! 7. `Intake::stop` returns a report in which *received = acked + dead-lettered +
//!    nacked + given back*.
//!
//! # Payloads that cannot be decoded
//!
//! A source of [raw messages](RawMessage) becomes a source of your messages with
//! [`decode`](Source::decode). A payload that cannot be decoded is a dead letter, with its bytes
//! and the error, and keeps its place in the order of its raw key: messages that were handed over
//! before it settle first, and messages behind it wait until the letter is durable. The letters go
//! to a [`RawLetterSink`], or to the source if it keeps dead letters. The other keys go on, and so
//! does the source.
//!
//! # Effects that must not repeat
//!
//! A message may come again, so its handler may run again. To have its effect once, commit the
//! effect together with a unique record of the message: its [id](RawMessage::id), or its key and
//! version. Where lanes `sequence` with a [`VersionStore`], a recorded version settles as a
//! duplicate and does not run.

mod contract;
pub use contract::{Decoded, Received, Source, SourceOf, StartGuard, StartLater};

mod describer;
pub use describer::Describer;

mod hold;
pub use hold::Hold;

mod noted;
pub use noted::NotedAttempts;

mod delivery;
pub use delivery::{Deliveries, Delivery, Generation, PartNews};

mod settlement;
pub use settlement::{LetterCause, Outcome, Settlement, SourceLetter};

mod features;
pub use features::Features;

mod error;
pub use error::{BoxError, SourceError};

mod raw;
pub use raw::RawMessage;

mod decode;
pub use decode::{DecodedPosition, RawLetter, RawLetterSink};

mod failure;
pub use failure::Failure;

mod dead_letter;
pub use dead_letter::{DeadLetter, DeadLetterSink};

mod version_store;
pub use version_store::VersionStore;

pub mod lease;

pub mod frontier;
pub use frontier::Frontier;

/// For implementing the traits that are used as trait objects, without another dependency.
pub use async_trait::async_trait;

/// The bytes of keys and payloads, without another dependency.
pub use bytes::Bytes;
