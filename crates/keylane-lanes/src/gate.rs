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

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    type FullLane = Full<Arc<Semaphore>>;

    fn granted(opening: &Opening<Arc<Semaphore>>) -> Option<usize> {
        match opening {
            Opening::Nothing => None,
            Opening::Grant(_, room) => Some(*room),
            Opening::Close(_) => panic!("the gate is closed"),
        }
    }

    #[test]
    fn as_many_come_in_as_there_is_room_for() {
        let mut full = FullLane::new(0);
        assert_eq!(granted(&full.grant(4, 4)), None);
        assert_eq!(granted(&full.grant(2, 4)), Some(2));
        assert_eq!(granted(&full.grant(2, 4)), None, "two are on their way");
        full.count_arrival();
        assert_eq!(granted(&full.grant(2, 4)), Some(1));
        let mut full = FullLane::new(0);
        full.count_arrival();
        assert_eq!(granted(&full.grant(3, 4)), Some(1), "it came unasked");
    }

    #[test]
    fn permits_that_nobody_takes_are_unclaimed() {
        let mut full = FullLane::new(0);
        assert!(!full.is_unclaimed(), "there are none");
        let Opening::Grant(gate, room) = full.grant(2, 4) else {
            panic!("there is room");
        };
        gate.add_permits(room);
        assert!(full.is_unclaimed());
        gate.try_acquire().expect("two are there").forget();
        assert!(!full.is_unclaimed(), "one is on its way");
    }

    #[test]
    fn a_gate_that_is_renewed_has_permits_for_what_is_not_on_its_way() {
        let mut full = FullLane::new(3);
        full.gate().try_acquire().expect("it is new").forget();
        let Opening::Close(old) = full.renew(1, 4) else {
            panic!("the old gate stays");
        };
        assert!(!std::ptr::eq(&*old, &**full.gate()));
        assert_eq!((old.available(), full.gate().available()), (2, 2));
        assert_eq!(granted(&full.grant(1, 4)), None, "three are let in");
        let Opening::Close(gate) = full.close() else {
            panic!("it stays");
        };
        assert_eq!(gate.available(), 2);
    }
}
