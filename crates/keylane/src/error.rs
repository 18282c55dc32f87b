//! What can go wrong, one small type per operation. Each gives back what it took.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// Any error, boxed: what a dead-letter sink may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Why a message was not accepted. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum SendError<M> {
    /// The dispatcher takes no more messages: it was drained, closed, aborted, or its runtime is
    /// gone.
    #[error("the dispatcher is closed")]
    Closed(M),
    /// The lane of this key is full and its policy is [`Overflow::Reject`](crate::Overflow).
    #[error("the lane of this key is full")]
    LaneFull(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("the message is larger than the capacity in bytes")]
    TooLarge(M),
}

impl<M> SendError<M> {
    /// The message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Closed(message) | Self::LaneFull(message) | Self::TooLarge(message) => message,
        }
    }
}

/// Why a message was not accepted at once. The message comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<M> {
    /// The dispatcher is at its capacity. Try again later, or wait with `send`.
    #[error("the dispatcher is at its capacity")]
    Full(M),
    /// The lane of this key is full; messages of other keys are welcome.
    #[error("the lane of this key is full")]
    LaneFull(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("the message is larger than the capacity in bytes")]
    TooLarge(M),
    /// The dispatcher takes no more messages.
    #[error("the dispatcher is closed")]
    Closed(M),
}

impl<M> TrySendError<M> {
    /// The message that was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(message)
            | Self::LaneFull(message)
            | Self::TooLarge(message)
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
        }
    }
}

// The message is the user's: it is not shown, and need not be showable.
impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::LaneFull(_) => "LaneFull(..)",
            Self::TooLarge(_) => "TooLarge(..)",
        })
    }
}

impl<M> fmt::Debug for TrySendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::LaneFull(_) => "LaneFull(..)",
            Self::TooLarge(_) => "TooLarge(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

/// No room can be reserved: the dispatcher takes no more messages.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[error("the dispatcher is closed")]
pub struct ReserveError;

/// Why an attempt did not succeed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<E> {
    /// The handler answered with this error.
    Error(E),
    /// The handler panicked with this text. A panic in the drop of its future is counted and logged,
    /// and changes no outcome.
    Panicked(String),
    /// The attempt took longer than this; its future was dropped.
    TimedOut(Duration),
    /// There was no attempt: the lane of the key was full and its policy gave the message up.
    LaneFull,
}

impl<E> Failure<E> {
    /// The handler's own error, if that is what it was.
    pub fn error(&self) -> Option<&E> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }
}

impl<E: fmt::Debug> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `Debug` and not `Display`, so that `()` and `anyhow`'s error are welcome as errors.
            Self::Error(error) => write!(f, "the handler failed: {error:?}"),
            Self::Panicked(text) => write!(f, "the handler panicked: {text}"),
            Self::TimedOut(limit) => write!(f, "the attempt took longer than {limit:?}"),
            Self::LaneFull => f.write_str("the lane of the key was full"),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for Failure<E> {}

/// Why there is no answer to a submitted message.
#[non_exhaustive]
#[derive(PartialEq, Eq)]
pub enum ReceiptError<M, E> {
    /// The last attempt failed, and the policy is [`Exhausted::Discard`](crate::Exhausted), or an
    /// operator skipped the halted message.
    Failed(Failure<E>),
    /// The last attempt failed, and the dead-letter sink has accepted the message.
    DeadLettered(Failure<E>),
    /// The dispatcher closed before the message had an outcome. No attempt was under way.
    HandedBack {
        /// Here it is again.
        message: M,
        /// Attempts that were started, and failed. With 0 it never was.
        attempts: u32,
    },
    /// Its lane was full ([`Overflow::DropOldest`](crate::Overflow)); it was never started.
    Dropped(M),
    /// `abort`, a deadline or the end of the runtime dropped the handler in the middle: what it did
    /// is not known. The message is here if the dispatcher kept one for another attempt.
    Interrupted(Option<M>),
    /// The dispatcher ended without settling the message: its runtime is gone.
    Stopped,
}

impl<M, E> ReceiptError<M, E> {
    /// The message, where it comes back.
    pub fn into_message(self) -> Option<M> {
        match self {
            Self::HandedBack { message, .. } | Self::Dropped(message) => Some(message),
            Self::Interrupted(message) => message,
            Self::Failed(_) | Self::DeadLettered(_) | Self::Stopped => None,
        }
    }
}

impl<M, E: fmt::Debug> fmt::Debug for ReceiptError<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => f.debug_tuple("Failed").field(failure).finish(),
            Self::DeadLettered(failure) => f.debug_tuple("DeadLettered").field(failure).finish(),
            Self::HandedBack { attempts, .. } => f
                .debug_struct("HandedBack")
                .field("attempts", attempts)
                .finish_non_exhaustive(),
            Self::Dropped(_) => f.write_str("Dropped(..)"),
            Self::Interrupted(_) => f.write_str("Interrupted(..)"),
            Self::Stopped => f.write_str("Stopped"),
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
            Self::Interrupted(_) => {
                f.write_str("interrupted in the middle of an attempt: what it did is not known")
            }
            Self::Stopped => f.write_str("the dispatcher stopped without settling the message"),
        }
    }
}

impl<M, E: fmt::Debug> std::error::Error for ReceiptError<M, E> {}

/// Why a dispatcher could not be built. Each names the setting to change.
#[non_exhaustive]
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The number of shards must be a power of two, and at least two.
    #[error("`shards` must be a power of two and at least 2, but is {0}")]
    Shards(usize),
    /// `Overflow::DeadLetter` needs a sink.
    #[error("`Overflow::DeadLetter` needs a sink: set `overflow_sink`, or `Exhausted::DeadLetter`")]
    NoDeadLetterSink,
}

/// Why a lane could not be acted on.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum LaneError<M = ()> {
    /// The lane is not halted; there is nothing to decide.
    #[error("the lane is not halted")]
    NotHalted(M),
    /// The message has another key than this lane, and would run beside the messages of its own.
    #[error("the message has another key than this lane")]
    OtherKey(M),
    /// The message alone is larger than the capacity in bytes, or than 4 GiB.
    #[error("the message is larger than the capacity in bytes")]
    TooLarge(M),
}

impl<M> LaneError<M> {
    /// The message that changed nothing.
    pub fn into_inner(self) -> M {
        match self {
            Self::NotHalted(message) | Self::OtherKey(message) | Self::TooLarge(message) => message,
        }
    }
}

impl<M> fmt::Debug for LaneError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHalted(_) => "NotHalted(..)",
            Self::OtherKey(_) => "OtherKey(..)",
            Self::TooLarge(_) => "TooLarge(..)",
        })
    }
}
