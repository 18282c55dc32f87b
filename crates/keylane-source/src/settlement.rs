//! What a source is told of its messages.

/// What became of one message. A source handles each of them, so the list is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was handled, or a message that stands for it was. Ack it.
    Done,
    /// Its dead letter is durable. Ack it.
    DeadLettered,
    /// It was given up without a dead letter, by a policy that the user has named. Ack it.
    Discarded,
    /// It was not handled: take it back, and hand it over again.
    Returned {
        /// Attempts at it that came to an end, those before it was handed over included. One that
        /// was dropped in the middle, by a revoke or a stop, is not its fault and not counted.
        attempts: u32,
    },
}

impl Outcome {
    /// It was not handled, after so many attempts. For the tests of sources.
    pub fn returned(attempts: u32) -> Self {
        Self::Returned { attempts }
    }

    /// Whether the source may forget the message.
    pub fn is_ack(self) -> bool {
        !matches!(self, Self::Returned { .. })
    }
}

/// The outcome of one delivery.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement<P> {
    /// The delivery.
    pub position: P,
    /// What became of it.
    pub outcome: Outcome,
}

impl<P> Settlement<P> {
    /// The outcome of the delivery at this position.
    pub fn new(position: P, outcome: Outcome) -> Self {
        Self { position, outcome }
    }
}

/// Why a message was given up on, in one word.
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

/// A message given up on, whose dead letter its source keeps.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLetter<P> {
    /// The delivery.
    pub position: P,
    /// How often its handler was tried.
    pub attempts: u32,
    /// Why it was given up on.
    pub cause: LetterCause,
    /// What is to be said about it.
    pub why: String,
}

impl<P> SourceLetter<P> {
    /// The letter of the delivery at this position.
    pub fn new(position: P, attempts: u32, cause: LetterCause, why: String) -> Self {
        Self {
            position,
            attempts,
            cause,
            why,
        }
    }
}
