//! The reasons why an attempt failed.

use std::fmt;
use std::time::Duration;

use crate::LetterCause;

/// The reason why an attempt did not succeed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub enum Failure<E> {
    /// The handler answered with this error.
    Error(E),
    /// The handler panicked with this text. A panic in the drop of its future is counted and
    /// logged, and changes no outcome.
    Panicked(String),
    /// The attempt took longer than this; its future was dropped.
    TimedOut(Duration),
    /// There was no attempt: the lane of the key was full and its policy gave the message up.
    LaneFull,
    /// There was no attempt: versions before this one have not come in time.
    Gap,
    /// The handler succeeded, and its version could not be recorded for this reason.
    NotRecorded(String),
    /// The handler answered for fewer messages than its batch had, and not for this one.
    NoAnswer,
    /// The message was in a batch that failed for this reason, and was not kept for another
    /// attempt.
    WithBatch(String),
    /// An operator skipped it.
    Skipped,
    /// Its source took it back, and the attempt did not end in time. The message is given back and
    /// neither tried again nor given up on here.
    Revoked,
    /// There was no attempt: the attempts before its source handed it over were all that it may
    /// have. The process ended during the last one, or after it gave the message up and before the
    /// message settled.
    Crashed,
    /// The lease of its key was lost, and the attempt was dropped. It is not counted: the message
    /// waits until the lease is held again.
    LeaseLost,
}

keylane_rt::text_in_debug! {
    Failure<E: fmt::Debug>:
    Error, Panicked, TimedOut, LaneFull, Gap, NotRecorded, NoAnswer, WithBatch, Skipped, Revoked,
    Crashed, LeaseLost
}

impl<E> Failure<E> {
    /// Returns the handler's own error, if there is one.
    pub fn error(&self) -> Option<&E> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the reason in one word, for a source that keeps the letter.
    pub fn cause(&self) -> LetterCause {
        match self {
            Self::Error(_) => LetterCause::Failed,
            Self::Panicked(_) => LetterCause::Panicked,
            Self::TimedOut(_) => LetterCause::TimedOut,
            Self::Crashed => LetterCause::Crashed,
            Self::Gap => LetterCause::Gap,
            Self::LaneFull => LetterCause::LaneFull,
            Self::Skipped => LetterCause::Skipped,
            Self::NotRecorded(_)
            | Self::NoAnswer
            | Self::WithBatch(_)
            | Self::Revoked
            | Self::LeaseLost => LetterCause::Other,
        }
    }

    /// Returns the same failure, with the handler's error passed through `map`.
    pub fn map<F>(&self, map: impl FnOnce(&E) -> F) -> Failure<F> {
        match self {
            Self::Error(error) => Failure::Error(map(error)),
            Self::Panicked(text) => Failure::Panicked(text.clone()),
            Self::TimedOut(limit) => Failure::TimedOut(*limit),
            Self::LaneFull => Failure::LaneFull,
            Self::Gap => Failure::Gap,
            Self::NotRecorded(text) => Failure::NotRecorded(text.clone()),
            Self::NoAnswer => Failure::NoAnswer,
            Self::WithBatch(text) => Failure::WithBatch(text.clone()),
            Self::Skipped => Failure::Skipped,
            Self::Revoked => Failure::Revoked,
            Self::Crashed => Failure::Crashed,
            Self::LeaseLost => Failure::LeaseLost,
        }
    }
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::Error(error)
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
            Self::Gap => f.write_str("earlier versions did not arrive in time"),
            Self::NotRecorded(error) => write!(f, "the version could not be recorded: {error}"),
            Self::NoAnswer => f.write_str("the handler gave no answer for this message"),
            Self::WithBatch(why) => write!(f, "its batch failed: {why}"),
            Self::Skipped => f.write_str("an operator skipped it"),
            Self::Revoked => f.write_str("its source took it back"),
            Self::Crashed => {
                f.write_str("its attempts were used up before its source delivered it")
            }
            Self::LeaseLost => f.write_str("the lease of the key was lost"),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for Failure<E> {}
