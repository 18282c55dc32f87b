//! The lanes of this engine: what they hold, and where the senders of a full one wait.

use keylane_lanes as lanes;
use keylane_lanes::{Effects, LaneMap, Opening};
use keylane_rt::unwind::shielded;
use keylane_rt::{Arc, Semaphore};

use super::message::{Held, Parked};
use crate::types::Types;

pub(crate) type Lane<T> = lanes::Lane<Parked<T>, Held<T>, Gate>;

pub(super) type Lanes<T> = LaneMap<<T as Types>::Key, Parked<T>, Held<T>, Gate>;

/// What follows from a decision of a lane of this engine.
pub(super) type LaneEffects<T> = Effects<Parked<T>, Held<T>, Gate>;

/// Where the senders of a full lane wait.
pub(crate) type Gate = Arc<Semaphore>;

/// Wakes senders that wait at the gate of a lane.
pub(super) fn open(opening: Opening<Gate>) {
    match opening {
        Opening::Nothing => {}
        Opening::Grant(gate, room) => shielded(|| gate.add_permits(room)),
        Opening::Close(gate) => shielded(|| gate.close()),
    }
}
