//! The outcomes that a source learns of its messages.

use std::fmt;

/// The outcome of one message. A source handles each variant, so the list is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message was handled, or a message that stands for it was. Ack it.
    Done,
    /// Its dead letter is durable. Ack it.
    DeadLettered,
    /// It was given up without a dead letter, by a policy that the user has set. Ack it.
    Discarded,
    /// It was not handled: take it back, and hand it over again.
    Returned {
        /// The attempts that came to an end, including those before the message was handed over. An
        /// attempt that a revoke or a stop dropped is not the message's fault and does not count.
        attempts: u32,
    },
}

impl Outcome {
    /// Returns the outcome of a message that was not handled, after this many attempts. For the
    /// tests of sources.
    pub fn returned(attempts: u32) -> Self {
        Self::Returned { attempts }
    }

    /// Returns whether the source may forget the message.
    pub fn is_ack(self) -> bool {
        !matches!(self, Self::Returned { .. })
    }
}

/// The outcome of one delivery.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement<P> {
    /// The position of the delivery.
    pub position: P,
    /// The outcome of the message.
    pub outcome: Outcome,
}

impl<P> Settlement<P> {
    /// Returns the outcome of the delivery at this position.
    pub fn new(position: P, outcome: Outcome) -> Self {
        Self { position, outcome }
    }
}

/// The cause of a dead letter, in one word.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LetterCause {
    /// The handler answered with an error.
    Failed,
    /// The handler panicked.
    Panicked,
    /// The attempt took too long.
    TimedOut,
    /// Its attempts were used up before its source handed it over.
    Crashed,
    /// The payload could not be decoded; there was no attempt.
    Undecodable,
    /// Versions before this one have not come in time; there was no attempt.
    Gap,
    /// Its lane was full; there was no attempt.
    LaneFull,
    /// An operator skipped it.
    Skipped,
    /// Another reason.
    Other,
}

impl fmt::Display for LetterCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::Undecodable => "undecodable",
            Self::Gap => "gap",
            Self::LaneFull => "lane full",
            Self::Skipped => "skipped",
            Self::Other => "other",
        })
    }
}

/// A message that was given up on, and whose dead letter its source keeps.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLetter<P> {
    /// The position of the delivery.
    pub position: P,
    /// The number of attempts.
    pub attempts: u32,
    /// The cause, in one word.
    pub cause: LetterCause,
    /// The reason, as text.
    pub why: String,
}

impl<P> SourceLetter<P> {
    /// Returns the letter of the delivery at this position.
    pub fn new(position: P, attempts: u32, cause: LetterCause, why: String) -> Self {
        Self {
            position,
            attempts,
            cause,
            why,
        }
    }
}
