//! The outcomes of messages.

use keylane_source::Outcome as SourceOutcome;

use crate::error::Failure;
use crate::types::Types;

/// How a message was settled.
pub(crate) enum Outcome<T: Types> {
    Done(T::Output),
    DeadLettered(Failure<T::Error>),
    Discarded(Failure<T::Error>),
    /// Pushed out of a full lane before it started.
    Displaced(T::Message),
    /// Taken out of its lane by an operator before it started.
    Purged(T::Message),
    /// Another message of its key waits already, and stands for it.
    Declined(T::Message),
    /// A newer message of its key stands for it.
    Superseded(T::Message),
    /// Its version was handled already.
    Duplicate(T::Message),
    /// It expired before it started.
    Expired(T::Message),
}

impl<T: Types> Outcome<T> {
    /// The outcome that its source learns.
    #[inline]
    pub(super) fn for_source(&self) -> SourceOutcome {
        match self {
            Self::Done(_) | Self::Declined(_) | Self::Superseded(_) | Self::Duplicate(_) => {
                SourceOutcome::Done
            }
            Self::DeadLettered(_) => SourceOutcome::DeadLettered,
            Self::Discarded(_) | Self::Displaced(_) | Self::Purged(_) | Self::Expired(_) => {
                SourceOutcome::Discarded
            }
        }
    }
}
