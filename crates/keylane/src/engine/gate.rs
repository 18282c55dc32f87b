//! Where the senders of a full lane wait.
//!
//! A lane that reaches its limit gets a gate: a semaphore without permits. Every settlement of
//! that lane that makes room grants one permit, so senders come in one by one, in the order in
//! which they came to the gate, and none is woken for nothing. A sender that gives up returns its
//! permit, and the next one gets it. The gate goes when the lane is half empty with nobody
//! waiting, or when the lane goes.

use super::{Engine, Lane, Overflow};
use crate::discipline::{Coalesce, Discipline, How};
use crate::lanes::{AtLimit, Rest, State};
use crate::rt::atomic::Ordering;
use crate::rt::{Arc, Semaphore};
use crate::types::Spec;
use crate::unwind::shielded;

pub(crate) type Gate = Arc<Semaphore>;

/// Counters of full lanes, by their keys' hashes: beside one full lane, one key in this many has
/// to look at its own lane before it sends, and not every key.
pub(super) const SLOTS: usize = 64;

/// Which counter a key belongs to: by the top bits, which spread best.
#[inline]
fn slot_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SLOTS.ilog2())) as usize
}

/// What to do with a gate once the shard's lock is gone: it wakes senders.
#[must_use = "senders wait for it"]
pub(super) enum Opening {
    Nothing,
    Grant(Gate, usize),
    Remove(Gate),
}

impl Opening {
    #[inline]
    pub(super) fn carry_out(self) {
        match self {
            Self::Nothing => {}
            Self::Grant(gate, room) => shielded(|| gate.add_permits(room)),
            #[cfg(keylane_mutant = "lost-wake")]
            Self::Remove(_) => {}
            #[cfg(not(keylane_mutant = "lost-wake"))]
            Self::Remove(gate) => shielded(|| gate.close()),
        }
    }
}

impl<T: Spec> Engine<T> {
    /// The gate of this key, if its lane is full.
    #[inline]
    pub(crate) fn gate(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        match &self.places {
            None => self.gate_of(hash, key),
            Some(_) => self.gate_of_place(hash, key),
        }
    }

    /// The same where the number of lanes may change.
    #[cold]
    fn gate_of_place(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        let places = self.places.as_ref()?;
        places.gate(key).or_else(|| {
            let (lane, hash) = places.lane(key, hash);
            self.gate_of(hash, &lane)
        })
    }

    #[inline]
    fn gate_of(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        if self.full_lanes[slot_of(hash)].load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lanes
            .peek(hash, key, |lane| lane.gate().cloned())
            .flatten()
    }

    /// Whether the lane of this key waits for a version, and this is it. Its sender must not wait at the
    /// gate behind those whose messages wait for it.
    pub(crate) fn is_awaited(&self, hash: u64, key: &T::Key, version: u64) -> bool {
        let awaited = self.lanes.peek(hash, key, |lane| {
            let sequencer = lane.extra().and_then(|extra| extra.sequencer.as_ref());
            is_in_gap(lane) && sequencer.is_some_and(|sequencer| sequencer.is_awaited(version))
        });
        awaited.unwrap_or(false) && !cfg!(keylane_mutant = "missing-locked-out")
    }

    /// What a lane at its limit does with one more message.
    pub(super) fn at_limit(&self) -> AtLimit {
        match self.settings.overflow {
            Overflow::Wait | Overflow::Reject => AtLimit::Park,
            Overflow::DropOldest => AtLimit::DropOldest,
            Overflow::DeadLetter => AtLimit::Refuse,
        }
    }

    /// Whether lanes settle what is more than one that runs and one that waits.
    fn holds_two_at_most(&self) -> bool {
        matches!(
            &self.settings.discipline,
            Discipline::Coalesce(Coalesce {
                how: How::KeepFirst | How::KeepLatest
            })
        ) && self.share.is_none()
    }

    /// A message came into this lane, which is `depth` deep now. True: with it the lane became full. Under
    /// the shard's lock.
    #[inline]
    pub(super) fn see_arrival(&self, lane: &mut Lane<T>, depth: usize, hash: u64) -> bool {
        if let Some(full) = lane.full() {
            full.granted = full.granted.saturating_sub(1);
        } else if depth >= self.settings.lane_capacity
            && matches!(self.settings.overflow, Overflow::Wait | Overflow::Reject)
            && !self.holds_two_at_most()
        {
            let slot = slot_of(hash);
            lane.set_full(Arc::new(Semaphore::new(0)), slot);
            self.full_lanes[slot].fetch_add(1, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// The head of this lane is about to leave it for good. Under the shard's lock.
    #[inline]
    pub(super) fn see_departure(&self, lane: &mut Lane<T>) -> Opening {
        // Counting the depth is not free, and hardly any lane is full.
        if lane.gate().is_none() {
            return Opening::Nothing;
        }
        self.open_gate(lane, lane.depth() - 1)
    }

    /// This lane is about to be this deep. Under the shard's lock.
    pub(super) fn open_gate(&self, lane: &mut Lane<T>, depth: usize) -> Opening {
        let limit = self.settings.lane_capacity;
        let Some(full) = lane.full() else {
            return Opening::Nothing;
        };
        // Permits were granted and nobody took one: nobody waits.
        let unclaimed = full.granted > 0 && full.gate.available_permits() == full.granted;
        if depth == 0 || (unclaimed && depth <= limit / 2) {
            return self.remove_gate(lane);
        }
        let room = limit.saturating_sub(depth + full.granted);
        if room == 0 {
            return Opening::Nothing;
        }
        full.granted += room;
        Opening::Grant(full.gate.clone(), room)
    }

    /// The lane has asked itself what to run. Under the shard's lock.
    ///
    /// One that waits for a version gets a new gate: whoever waits at the old one looks again, and one of
    /// them may bring that version.
    pub(super) fn open_or_renew_gate(&self, lane: &mut Lane<T>) -> Opening {
        let depth = lane.depth();
        if depth == 0 || !is_in_gap(lane) {
            return self.open_gate(lane, depth);
        }
        let Some(full) = lane.full() else {
            return Opening::Nothing;
        };
        let on_their_way = full.granted.saturating_sub(full.gate.available_permits());
        let limit = self.settings.lane_capacity;
        let room = limit.saturating_sub(depth + on_their_way);
        full.granted = on_their_way + room;
        Opening::Remove(std::mem::replace(
            &mut full.gate,
            Arc::new(Semaphore::new(room)),
        ))
    }

    /// Has everybody at the gate look again where to go. Under the shard's lock.
    pub(super) fn renew_gate(&self, lane: &mut Lane<T>) -> Opening {
        let Some(old) = lane.take_full() else {
            return Opening::Nothing;
        };
        // What was granted and has not arrived makes the lane deeper, as whatever is on its way.
        let room = self.settings.lane_capacity.saturating_sub(lane.depth());
        lane.set_full(Arc::new(Semaphore::new(room)), old.slot);
        if let Some(full) = lane.full() {
            full.granted = room;
        }
        Opening::Remove(old.gate)
    }

    /// Takes the gate away. Under the shard's lock.
    pub(super) fn remove_gate(&self, lane: &mut Lane<T>) -> Opening {
        match lane.take_full() {
            Some(full) => {
                self.full_lanes[full.slot].fetch_sub(1, Ordering::Relaxed);
                Opening::Remove(full.gate)
            }
            None => Opening::Nothing,
        }
    }
}

/// Whether the lane waits for a version that has not come, and nothing of it runs.
fn is_in_gap<T, H, G>(lane: &crate::lanes::Lane<T, H, G>) -> bool {
    matches!(
        lane.state(),
        State::Resting {
            why: Rest::Gap | Rest::HaltedGap,
            ..
        }
    )
}
