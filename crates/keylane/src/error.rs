//! Errors, one small type per operation. Each returns the message that it is about.
//!
//! The errors of the queue, the keyed semaphore and the streams are in their own modules.

use std::fmt;

use keylane_rt::text_in_debug;
use thiserror::Error;

#[doc(inline)]
pub use keylane_source::{BoxError, Failure};

const CLOSED: &str = "the dispatcher is closed: it takes nothing more after `drain`, `close` or \
                      `abort`, or when its runtime has ended";
const LANE_FULL: &str = "the lane of this key is full: try again later, or raise `lane_capacity`";
const TOO_LARGE: &str = "the message is larger than the capacity in bytes: raise `capacity_bytes`";
const TOO_FAR: &str = "the time of the message is too far in the future: choose an earlier one";

/// The reason why a message was not accepted. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum SendError<M> {
    /// The dispatcher takes no more messages: it was drained, closed, aborted, or its runtime is
    /// gone.
    #[error("{CLOSED}")]
    Closed(M),
    /// The lane of this key is full and its policy is [`Overflow::Reject`](crate::Overflow).
    #[error("{LANE_FULL}")]
    LaneFull(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("{TOO_LARGE}")]
    TooLarge(M),
    /// The message has to wait for a time that does not exist.
    #[error("{TOO_FAR}")]
    TooFar(M),
}

text_in_debug! { SendError<M>: Closed, LaneFull, TooLarge, TooFar }

impl<M> SendError<M> {
    /// Returns the message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Closed(message)
            | Self::LaneFull(message)
            | Self::TooLarge(message)
            | Self::TooFar(message) => message,
        }
    }
}

/// The reason why a message was not accepted at once. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<M> {
    /// The dispatcher is at its capacity. Try again later, or wait with `send`.
    #[error(
        "the dispatcher is at its capacity: try again later, wait with `send`, or raise `capacity`"
    )]
    Full(M),
    /// The lane of this key is full; messages of other keys may still be accepted.
    #[error("{LANE_FULL}")]
    LaneFull(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("{TOO_LARGE}")]
    TooLarge(M),
    /// The message has to wait for a time that does not exist.
    #[error("{TOO_FAR}")]
    TooFar(M),
    /// The dispatcher takes no more messages.
    #[error("{CLOSED}")]
    Closed(M),
}

text_in_debug! { TrySendError<M>: Full, LaneFull, TooLarge, TooFar, Closed }

impl<M> TrySendError<M> {
    /// Returns the message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(message)
            | Self::LaneFull(message)
            | Self::TooLarge(message)
            | Self::TooFar(message)
            | Self::Closed(message) => message,
        }
    }
}

impl<M> From<SendError<M>> for TrySendError<M> {
    fn from(error: SendError<M>) -> Self {
        match error {
            SendError::Closed(message) => Self::Closed(message),
            SendError::LaneFull(message) => Self::LaneFull(message),
            SendError::TooLarge(message) => Self::TooLarge(message),
            SendError::TooFar(message) => Self::TooFar(message),
        }
    }
}

/// No room can be reserved: the dispatcher takes no more messages.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error("{CLOSED}")]
pub struct ReserveError;

text_in_debug! { ReserveError }

/// The reason why the number of lanes did not change.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum ResizeError {
    /// There must be at least one lane.
    #[error("there must be at least one lane")]
    Zero,
    /// There can be no more than 65,536 lanes.
    #[error("there can be no more than 65,536 lanes")]
    TooMany,
    /// The dispatcher takes no more messages.
    #[error("{CLOSED}")]
    Closed,
}

text_in_debug! { ResizeError: Zero, TooMany, Closed }

/// The reason why a submitted message has no answer.
#[non_exhaustive]
#[derive(PartialEq, Eq)]
pub enum ReceiptError<M, E> {
    /// The last attempt failed, and the policy is [`OnExhausted::Discard`](crate::OnExhausted); or
    /// there was no attempt, for the reason inside: an operator skipped the message, or its merge
    /// panicked.
    Failed(Failure<E>),
    /// The last attempt failed, and the dead-letter sink has accepted the message.
    DeadLettered(Failure<E>),
    /// The dispatcher closed before the message had an outcome. No attempt was under way.
    HandedBack {
        /// The message.
        message: M,
        /// The attempts that started and failed; 0 if the message never started.
        attempts: u32,
    },
    /// Its lane was full ([`Overflow::DropOldest`](crate::Overflow)); it never started.
    Dropped(M),
    /// An operator purged its lane; the last attempt, if there was one, has failed.
    Purged(M),
    /// A message of the same key waits already, and stands for it
    /// ([`Coalesce::keep_first`](crate::discipline::Coalesce::keep_first)).
    Declined(M),
    /// A newer message of the same key took its place
    /// ([`Coalesce::keep_latest`](crate::discipline::Coalesce::keep_latest)).
    Superseded(M),
    /// It became part of another message of its key, which has settled.
    Merged {
        /// Whether the handler succeeded with that message.
        handled: bool,
    },
    /// Its version came before, or is older than one that did ([`Sequence`](crate::discipline::Sequence)). That
    /// message was accepted, and may still be on its way.
    Duplicate(M),
    /// It was too old to start, or to be tried again
    /// ([`Builder::expire_after`](crate::Builder::expire_after)).
    Expired(M),
    /// `abort`, a deadline or the end of the runtime dropped the handler in the middle: its effect
    /// is not known. The message is here if the dispatcher kept one for another attempt.
    Interrupted(Option<M>),
    /// The dispatcher ended without settling the message: its runtime is gone.
    Stopped,
}

impl<M, E> ReceiptError<M, E> {
    /// Returns the message, if it comes back.
    pub fn into_message(self) -> Option<M> {
        match self {
            Self::HandedBack { message, .. }
            | Self::Dropped(message)
            | Self::Purged(message)
            | Self::Declined(message)
            | Self::Superseded(message)
            | Self::Duplicate(message)
            | Self::Expired(message) => Some(message),
            Self::Interrupted(message) => message,
            Self::Failed(_) | Self::DeadLettered(_) | Self::Merged { .. } | Self::Stopped => None,
        }
    }
}

impl<M, E: fmt::Debug> fmt::Display for ReceiptError<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => write!(f, "given up: {failure}"),
            Self::DeadLettered(failure) => write!(f, "dead-lettered: {failure}"),
            Self::HandedBack { attempts: 0, .. } => {
                f.write_str("handed back, never started: the dispatcher closed")
            }
            Self::HandedBack { attempts, .. } => write!(
                f,
                "handed back after {attempts} failed attempts: the dispatcher closed"
            ),
            Self::Dropped(_) => f.write_str("dropped: the lane of its key was full"),
            Self::Purged(_) => f.write_str("purged: an operator emptied the lane of its key"),
            Self::Declined(_) => f.write_str(
                "declined: a message of its key is already waiting and will be handled instead",
            ),
            Self::Superseded(_) => {
                f.write_str("superseded: a newer message of its key took its place")
            }
            Self::Merged { handled: true } => {
                f.write_str("merged into a message of its key, which was handled")
            }
            Self::Merged { handled: false } => {
                f.write_str("merged into a message of its key, which was not handled")
            }
            Self::Duplicate(_) => {
                f.write_str("duplicate: its version, or a newer one, was already received")
            }
            Self::Expired(_) => f.write_str("expired before it could be started or retried"),
            Self::Interrupted(_) => {
                f.write_str("interrupted during an attempt: it is not known what the attempt did")
            }
            Self::Stopped => f.write_str("the dispatcher stopped without settling the message"),
        }
    }
}

impl<M, E: fmt::Debug> std::error::Error for ReceiptError<M, E> {}

text_in_debug! {
    ReceiptError<M, E: fmt::Debug>:
    Failed, DeadLettered, HandedBack, Dropped, Purged, Declined, Superseded, Merged, Duplicate,
    Expired, Interrupted, Stopped
}

/// The reason why a dispatcher could not be built. Each variant names the setting to change.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum BuildError {
    /// `spawn` was called outside a Tokio runtime.
    #[error("no Tokio runtime here: call `spawn` inside one, for example under `#[tokio::main]`")]
    NoRuntime,
    /// The runtime has no timers.
    #[error("the Tokio runtime has no timers: build it with `enable_time` or `enable_all`")]
    NoTimers,
    /// This setting must be at least one, or a time longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting is larger than the engine can count.
    #[error("`{0}` is too large")]
    TooLarge(&'static str),
    /// The smaller limit of a range comes first.
    #[error("`adaptive_concurrency` has the range {min} to {max}: give the smaller limit first")]
    EmptyRange {
        /// The lower limit, as it was set.
        min: usize,
        /// The upper limit, as it was set.
        max: usize,
    },
    /// The number of shards must be a power of two, and at least two.
    #[error("`shards` must be a power of two and at least 2, but is {0}")]
    Shards(usize),
    /// Two settings that exclude each other. `batch` stands for `spawn_batches` too, and
    /// `expire_after` for `expire_by`.
    #[error("`{0}` cannot be combined with `{1}`")]
    Conflict(&'static str, &'static str),
    /// `spawn_batches` starts a handler of batches, `spawn` one of messages.
    #[error("`batch` needs `spawn_batches`: its handler takes several messages at once")]
    Batch,
    /// A setting that does nothing without another one.
    #[error("`{0}` needs `{1}`")]
    Needs(&'static str, &'static str),
    /// `share_answers` names another type than the handler's answer or error.
    #[error("`share_answers` names a type that is not the handler's answer or error type")]
    AnswerType,
    /// A dead letter needs a sink: `Overflow::DeadLetter`, `OnGap::DeadLetter`.
    #[error(
        "`Overflow::DeadLetter` and `OnGap::DeadLetter` need a sink: set `overflow_sink`, or \
         `OnExhausted::DeadLetter`"
    )]
    NoDeadLetterSink,
}

text_in_debug! {
    BuildError:
    NoRuntime, NoTimers, Zero, TooLarge, EmptyRange, Shards, Conflict, Batch, Needs, AnswerType,
    NoDeadLetterSink
}

/// The reason why a source cannot be consumed. Each variant names what to change.
#[non_exhaustive]
#[derive(Error)]
pub enum ConsumeError {
    /// The dispatcher takes no more messages.
    #[error("{CLOSED}")]
    Closed,
    /// A message that fails would be discarded, and its source told that it may forget it.
    #[error(
        "a failed message of the source would be discarded: set `on_exhausted` on the dispatcher"
    )]
    Discards,
    /// The source does not keep dead letters.
    #[error(
        "`OnExhausted::AtSource` needs a source that keeps dead letters: configure dead letters \
         on the source, or set `OnExhausted::dead_letter(sink)`"
    )]
    NoDeadLetters,
    /// [`Guarantee::EffectivelyOnce`](crate::consume::Guarantee::EffectivelyOnce) needs versions, and a
    /// store that keeps them.
    #[error("`Guarantee::EffectivelyOnce` needs `sequence` with a `VersionStore`")]
    NoVersions,
    /// This setting must be at least one, or a time longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// The source lacks something.
    #[error(transparent)]
    Source(#[from] keylane_source::SourceError),
}

text_in_debug! { ConsumeError: Closed, Discards, NoDeadLetters, NoVersions, Zero, Source }

/// The reason why a call of [`LaneControl`](crate::LaneControl) changed nothing.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum LaneError<M = ()> {
    /// The lane is neither halted nor waiting for what was asked: there is nothing to decide.
    #[error("the lane of this key is not waiting for this decision: look at its state")]
    NotHalted(M),
    /// The head is with its handler, with the dead-letter sink, or on its way there, and cannot be
    /// changed.
    #[error("the head of the lane is in flight, or about to be: try again when it has ended")]
    InFlight(M),
    /// The message has another key than this lane, and would run beside the other messages of its
    /// key.
    #[error("the key of the message is not the key of this lane: give it one with the same key")]
    OtherKey(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("{TOO_LARGE}")]
    TooLarge(M),
}

text_in_debug! { LaneError<M>: NotHalted, InFlight, OtherKey, TooLarge }

impl<M> LaneError<M> {
    /// Returns the message that changed nothing.
    pub fn into_inner(self) -> M {
        match self {
            Self::NotHalted(message)
            | Self::InFlight(message)
            | Self::OtherKey(message)
            | Self::TooLarge(message) => message,
        }
    }
}
