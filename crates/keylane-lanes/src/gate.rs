//! The gate of a full lane, as a lane sees it.

use keylane_rt::{Arc, Semaphore};

/// The gate at which the senders of a full lane wait. A lane only keeps it and counts.
pub trait Gate: Clone {
    /// Returns a gate with permits for this many senders.
    fn with_permits(permits: usize) -> Self;

    /// Returns the number of permits that no sender has taken.
    fn available(&self) -> usize;
}

/// The gate of senders that are tasks.
impl Gate for Arc<Semaphore> {
    fn with_permits(permits: usize) -> Self {
        Self::new(Semaphore::new(permits))
    }

    fn available(&self) -> usize {
        self.available_permits()
    }
}

/// What a full lane has.
#[derive(Debug)]
pub(crate) struct Full<G> {
    pub gate: G,
    /// Permits given to senders whose messages have not arrived yet.
    pub(super) granted: usize,
}

/// An action at a gate after the lock of the lane's shard is released, because it wakes senders.
#[derive(Debug)]
#[must_use = "senders wait for it"]
pub enum Opening<G> {
    /// There is nothing to open.
    Nothing,
    /// This many more senders may come in.
    Grant(G, usize),
    /// All senders look again where to go.
    Close(G),
}
