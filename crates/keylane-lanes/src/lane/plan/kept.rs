//! The data that the plan of a lane keeps.

use super::batch::Batch;
use super::sequencer::Sequencer;

/// What the plan of a lane has to keep.
///
/// First in, first out keeps nothing, and coalescing hardly ever anything: the parked messages say
/// all.
#[derive(Debug)]
pub(crate) enum Plan<T> {
    Stateless,
    /// Two messages are with the router, which has the user's function make one of them. It comes
    /// back into this lane. So many messages will have become one then.
    Merging(usize),
    Sequence(Sequencer<T>),
    Batch(Batch),
}

impl<T> Plan<T> {
    /// Messages of the lane that are neither its head nor parked.
    pub(crate) fn extra_len(&self) -> usize {
        match self {
            Self::Stateless => 0,
            Self::Merging(messages) => *messages,
            Self::Sequence(sequencer) => sequencer.early_len(),
            Self::Batch(batch) => batch.members,
        }
    }

    pub(crate) fn sequencer(&self) -> Option<&Sequencer<T>> {
        match self {
            Self::Sequence(sequencer) => Some(sequencer),
            Self::Stateless | Self::Merging(_) | Self::Batch(_) => None,
        }
    }

    pub(crate) fn sequencer_mut(&mut self) -> Option<&mut Sequencer<T>> {
        match self {
            Self::Sequence(sequencer) => Some(sequencer),
            Self::Stateless | Self::Merging(_) | Self::Batch(_) => None,
        }
    }

    /// What is parked may wait for more again.
    pub(crate) fn forget_lingering(&mut self) {
        if let Self::Batch(batch) = self {
            batch.has_lingered = false;
        }
    }

    /// What was to be merged is back.
    pub(crate) fn end_merge(&mut self) {
        if let Self::Merging(_) = self {
            *self = Self::Stateless;
        }
    }

    /// No message is out with the head any more, and what is parked may wait for more.
    pub(crate) fn reset_batch(&mut self) {
        if let Self::Batch(batch) = self {
            *batch = Batch::default();
        }
    }

    /// What a batch has to keep.
    pub(crate) fn batch_mut(&mut self) -> &mut Batch {
        if let Self::Stateless = self {
            *self = Self::Batch(Batch::default());
        }
        match self {
            Self::Batch(batch) => batch,
            Self::Stateless | Self::Merging(_) | Self::Sequence(_) => {
                unreachable!("the rules say batch")
            }
        }
    }
}
