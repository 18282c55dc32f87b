//! What can go wrong at a queue, one small type per operation.

use std::fmt;

use thiserror::Error;

/// The queue takes no more messages: it was closed, or its runtime is gone. The message comes back.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error("the queue is closed")]
pub struct EnqueueError<M>(pub M);

impl<M> EnqueueError<M> {
    /// The message that was not accepted.
    pub fn into_inner(self) -> M {
        self.0
    }
}

/// Why a message was not accepted at once. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryEnqueueError<M> {
    /// The queue is at its limit. Try again later, or wait with `enqueue`.
    #[error("the queue is at its limit")]
    Full(M),
    /// The queue takes no more messages.
    #[error("the queue is closed")]
    Closed(M),
}

impl<M> TryEnqueueError<M> {
    /// The message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<M> From<EnqueueError<M>> for TryEnqueueError<M> {
    fn from(error: EnqueueError<M>) -> Self {
        Self::Closed(error.0)
    }
}

// The message is the user's: it is not shown, and need not be showable.
impl<M> fmt::Debug for EnqueueError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnqueueError(..)")
    }
}

impl<M> fmt::Debug for TryEnqueueError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

/// Why nothing can be leased at once.
#[non_exhaustive]
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryDequeueError {
    /// No message may be handed out now: there is none, or every key that has one is leased or waits
    /// to be tried again.
    #[error("no message may be handed out now")]
    Empty,
    /// The queue is closed, and everything in it has settled.
    #[error("the queue is closed and empty")]
    Closed,
}

/// Why a lease could not be ended or extended.
#[non_exhaustive]
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseError {
    /// The lease has run out, so its message went back to the head of its key: another worker may
    /// have it, or may have completed it. What this worker did with it counts for nothing.
    #[error("the lease has run out")]
    Expired,
    /// A lease cannot be extended by no time at all. It is as it was.
    #[error("a lease cannot be extended by zero")]
    Zero,
    /// The time is longer than a year. The lease is as it was.
    #[error("a lease cannot be extended by more than a year")]
    TooLong,
}
