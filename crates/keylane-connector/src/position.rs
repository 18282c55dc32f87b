//! The position of a delivery.

use std::fmt;

use keylane_source::Generation;

/// One hand-over of a message to a worker.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerPosition<I> {
    pub(crate) id: I,
    /// Attempts up to this one may start without a note.
    pub(crate) noted: u32,
    pub(crate) generation: Generation,
}

impl<I> WorkerPosition<I> {
    /// Returns the name of the message in its system.
    pub fn id(&self) -> &I {
        &self.id
    }
}

impl<I: fmt::Debug> fmt::Debug for WorkerPosition<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}
