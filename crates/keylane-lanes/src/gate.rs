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

/// What a full lane has: its gate, and how many were let in.
#[derive(Debug)]
pub(crate) struct Full<G> {
    gate: G,
    /// Permits given to senders whose messages have not arrived yet.
    granted: usize,
}

impl<G: Gate> Full<G> {
    pub(crate) fn new(permits: usize) -> Self {
        Self {
            gate: G::with_permits(permits),
            granted: permits,
        }
    }

    /// Counts a message that came in.
    pub(crate) fn count_arrival(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Whether permits were granted and no sender took one: none waits.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.granted > 0 && self.gate.available() == self.granted
    }

    /// Lets in as many senders as there is room for beside these messages.
    pub(crate) fn grant(&mut self, messages: usize, capacity: usize) -> Opening<G> {
        let room = capacity.saturating_sub(messages + self.granted);
        if room == 0 {
            return Opening::Nothing;
        }
        self.granted += room;
        Opening::Grant(self.gate.clone(), room)
    }

    /// Lets all senders look again where to go. Those that find the new gate come in as far as
    /// there is room beside these messages and those that are on their way.
    pub(crate) fn renew(&mut self, messages: usize, capacity: usize) -> Opening<G> {
        let on_their_way = self.granted.saturating_sub(self.gate.available());
        let room = capacity.saturating_sub(messages + on_their_way);
        self.granted = on_their_way + room;
        let old = std::mem::replace(&mut self.gate, G::with_permits(room));
        Opening::Close(old)
    }
}

impl<G> Full<G> {
    pub(crate) fn gate(&self) -> &G {
        &self.gate
    }

    /// Lets all senders look again where to go: the lane is not full any more.
    pub(crate) fn close(self) -> Opening<G> {
        Opening::Close(self.gate)
    }
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
