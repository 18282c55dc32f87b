//! The changes that a worker reports to its system.

use std::mem::take;

/// The changes that a worker reports to its system in one request.
///
/// After a lost answer they are sent again: applied once more, as a whole or after a part of them
/// was applied, they must have the effect of once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<I> {
    /// Messages that were handled.
    pub done: Vec<I>,
    /// Messages that were given up: by a policy of the user, or as dead letters, which stay.
    pub gone: Vec<I>,
    /// How many attempts count for these messages from now on. Of several entries of a message the
    /// last one counts. It may be lower than what was noted: an attempt was dropped.
    pub notes: Vec<(I, u32)>,
    /// Messages that were returned, and are to be handed over again.
    pub again: Vec<I>,
}

impl<I> Default for Changes<I> {
    fn default() -> Self {
        Self {
            done: Vec::new(),
            gone: Vec::new(),
            notes: Vec::new(),
            again: Vec::new(),
        }
    }
}

impl<I> Changes<I> {
    /// Returns whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.again.is_empty() && self.is_settled()
    }

    /// Returns whether the system knows all settlements and attempts. A message that is to come
    /// again does not count: its attempts do.
    pub(crate) fn is_settled(&self) -> bool {
        self.done.is_empty() && self.gone.is_empty() && self.notes.is_empty()
    }

    /// Returns the messages that have settled.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &I> {
        self.done.iter().chain(&self.gone)
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.done.append(&mut later.done);
        self.gone.append(&mut later.gone);
        self.notes.append(&mut later.notes);
        self.again.append(&mut later.again);
    }

    /// Returns only the settlements: a worker that enters again gets everything else again.
    pub(crate) fn settlements(mut self) -> Self {
        Self {
            done: take(&mut self.done),
            gone: take(&mut self.gone),
            ..Self::default()
        }
    }
}

impl<I: PartialEq> Changes<I> {
    /// Returns whether this message has settled.
    pub fn settles(&self, id: &I) -> bool {
        self.settled().any(|settled| settled == id)
    }
}
