//! The lanes of this engine: what they hold, and where the senders of a full one wait.

use super::message::{Held, Parked};
use crate::lanes::{self, Effects, LaneMap, Opening};
use crate::rt::{Arc, Semaphore};
use crate::types::Types;
use crate::unwind::shielded;

pub(crate) type Lane<T> = lanes::Lane<Parked<T>, Held<T>, Gate>;

pub(super) type Lanes<T> = LaneMap<<T as Types>::Key, Parked<T>, Held<T>, Gate>;

/// What follows from a decision of a lane of this engine.
pub(super) type LaneEffects<T> = Effects<Parked<T>, Held<T>, Gate>;

/// Where the senders of a full lane wait.
pub(crate) type Gate = Arc<Semaphore>;

impl lanes::Gate for Gate {
    fn with_permits(permits: usize) -> Self {
        Arc::new(Semaphore::new(permits))
    }

    fn available(&self) -> usize {
        self.available_permits()
    }
}

/// Wakes senders that wait at the gate of a lane.
pub(super) fn open(opening: Opening<Gate>) {
    match opening {
        Opening::Nothing => {}
        Opening::Grant(gate, room) => shielded(|| gate.add_permits(room)),
        Opening::Close(gate) => shielded(|| gate.close()),
    }
}
