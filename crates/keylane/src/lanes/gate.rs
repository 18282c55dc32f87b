//! The gate of a full lane, as a lane sees it.

/// The senders of a full lane wait here. A lane only keeps it and counts.
pub(crate) trait Gate: Clone {
    /// A gate with permits for this many senders.
    fn with_permits(permits: usize) -> Self;

    /// Permits that no sender has taken.
    fn available(&self) -> usize;
}

/// What a full lane has.
#[derive(Debug)]
pub(crate) struct Full<G> {
    pub(crate) gate: G,
    /// Permits given to senders whose messages have not arrived yet.
    pub(super) granted: usize,
}

/// What to do with a gate when the lock of the lane's shard is gone: it wakes senders.
#[derive(Debug)]
#[must_use = "senders wait for it"]
pub(crate) enum Opening<G> {
    Nothing,
    /// This many more senders may come in.
    Grant(G, usize),
    /// All senders look again where to go.
    Close(G),
}
