//! The errors of a queue, one small type per operation.

use keylane_rt::text_in_debug;
use thiserror::Error;

/// The reason why a queue could not be started.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum SpawnError {
    /// `spawn` was called outside a Tokio runtime.
    #[error("no Tokio runtime here: call `spawn` inside one, for example under `#[tokio::main]`")]
    NoRuntime,
    /// The runtime has no timers.
    #[error("the Tokio runtime has no timers: build it with `enable_time` or `enable_all`")]
    NoTimers,
    /// This setting must be at least one, or a time longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting is larger than the queue can count.
    #[error("`{0}` is too large")]
    TooLarge(&'static str),
    /// The number of shards must be a power of two, and at least two.
    #[error("`shards` must be a power of two and at least 2, but is {0}")]
    Shards(usize),
}

text_in_debug! { SpawnError: NoRuntime, NoTimers, Zero, TooLarge, Shards }

/// The reason why a message was not accepted. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueError<M> {
    /// The lane of this key has as many messages as `lane_capacity`. Other keys are not affected.
    #[error("the lane of this key is full: try again later, or raise `lane_capacity`")]
    LaneFull(M),
    /// The queue accepts no more messages: it was closed, or its runtime is gone.
    #[error("the queue is closed")]
    Closed(M),
}

text_in_debug! { EnqueueError<M>: LaneFull, Closed }

impl<M> EnqueueError<M> {
    /// Returns the message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::LaneFull(message) | Self::Closed(message) => message,
        }
    }
}

/// The reason why a message was not accepted at once. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryEnqueueError<M> {
    /// The queue is at its capacity. Try again later, or wait with `enqueue`.
    #[error("the queue is at its capacity: wait with `enqueue`, or raise `capacity`")]
    Full(M),
    /// The lane of this key has as many messages as `lane_capacity`. Other keys are not affected.
    #[error("the lane of this key is full: try again later, or raise `lane_capacity`")]
    LaneFull(M),
    /// The queue accepts no more messages: it was closed, or its runtime is gone.
    #[error("the queue is closed")]
    Closed(M),
}

text_in_debug! { TryEnqueueError<M>: Full, LaneFull, Closed }

impl<M> TryEnqueueError<M> {
    /// Returns the message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(message) | Self::LaneFull(message) | Self::Closed(message) => message,
        }
    }
}

impl<M> From<EnqueueError<M>> for TryEnqueueError<M> {
    fn from(error: EnqueueError<M>) -> Self {
        match error {
            EnqueueError::LaneFull(message) => Self::LaneFull(message),
            EnqueueError::Closed(message) => Self::Closed(message),
        }
    }
}

/// The reason why no message was leased at once.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryDequeueError {
    /// No message can be leased now: there is none, or every key that has one is leased or delayed.
    #[error("no message can be leased now")]
    Empty,
    /// The queue is closed, and every message in it has settled.
    #[error("the queue is closed and empty")]
    Closed,
}

text_in_debug! { TryDequeueError: Empty, Closed }

/// The reason why a lease was not ended or extended.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum LeaseError {
    /// The lease has expired, so its message went back to the head of its key: another worker may
    /// have it, or may have completed it. The result of this worker does not count.
    #[error("the lease has expired: drop the result, because another worker may have the message")]
    Expired,
    /// A lease cannot be extended by zero. It is as it was.
    #[error("a lease cannot be extended by zero")]
    Zero,
    /// A lease cannot be extended by more than a year. It is as it was.
    #[error("a lease cannot be extended by more than a year")]
    TooLong,
}

text_in_debug! { LeaseError: Expired, Zero, TooLong }
