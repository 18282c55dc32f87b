//! Room for messages: the capacity, in messages and in bytes, and what does not count against it.
//!
//! Messages behind failing jobs, and above the limit of their lane, return their room and are
//! counted as *stalled*, up to a limit of their own.

use keylane_lanes::{Change, Stall};
use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::unwind::shielded;
use keylane_rt::{OwnLine, Semaphore};

use super::lane::Lane;
use super::message::{Charge, Obligation, Parked, RoomState};
use crate::types::Spec;

/// Counters of full lanes, by their keys' hashes. While a lane is full, only one key in this many
/// has to check its own lane before it sends.
const SLOTS: usize = 64;

/// Which counter a key belongs to: by the top bits, which spread best.
#[inline]
fn slot_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SLOTS.ilog2())) as usize
}

/// The limits of all lanes together.
#[derive(Debug)]
pub(crate) struct Room {
    /// Room for messages that are accepted and not settled.
    pub(crate) messages: OwnLine<Semaphore>,
    /// Room in bytes.
    pub(crate) bytes: Option<Semaphore>,
    /// Stalled messages, whose room was returned. Relaxed, without a partner: it orders nothing.
    stalled: AtomicUsize,
    stalled_capacity: usize,
    /// Lanes at their limit. Senders read it relaxed: seeing it late only lets a few more messages
    /// into the lane.
    full_lanes: [AtomicUsize; SLOTS],
}

/// Room to return after the lock is released: returning it wakes senders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    messages: usize,
    bytes: usize,
}

impl Room {
    pub(super) fn new(messages: usize, bytes: Option<usize>, stalled: usize) -> Self {
        Self {
            messages: OwnLine(Semaphore::new(messages)),
            bytes: bytes.map(Semaphore::new),
            stalled: AtomicUsize::new(0),
            stalled_capacity: stalled,
            full_lanes: std::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// Refuses senders from now on, those that wait for room included.
    pub(super) fn close(&self) {
        shielded(|| self.messages.close());
        if let Some(bytes) = &self.bytes {
            shielded(|| bytes.close());
        }
    }

    /// Gives room back to senders.
    #[inline]
    pub(crate) fn give(&self, messages: usize, bytes: usize) {
        if messages > 0 {
            shielded(|| self.messages.add_permits(messages));
        }
        if bytes > 0
            && let Some(semaphore) = &self.bytes
        {
            shielded(|| semaphore.add_permits(bytes));
        }
    }

    /// Gives back what was freed under a lock.
    #[inline]
    pub(super) fn free(&self, freed: Freed) {
        if freed.messages > 0 || freed.bytes > 0 {
            self.give(freed.messages, freed.bytes);
        }
    }

    /// Whether a lane with a hash like this one is full.
    #[inline]
    pub(super) fn may_be_full(&self, hash: u64) -> bool {
        self.full_lanes[slot_of(hash)].load(Ordering::Relaxed) > 0
    }

    /// A lane became full, or is so no more.
    #[inline]
    pub(super) fn count_full(&self, hash: u64, change: Change) {
        change_gauge(&self.full_lanes[slot_of(hash)], change);
    }

    pub(super) fn full_lanes(&self) -> usize {
        let slots = self.full_lanes.iter();
        slots.map(|slot| slot.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn stalled(&self) -> usize {
        self.stalled.load(Ordering::Relaxed)
    }

    /// A stalled message has settled.
    #[inline]
    pub(super) fn unstall(&self) {
        self.stalled.fetch_sub(1, Ordering::Relaxed);
    }

    /// Marks messages of a lane as stalled. Under the shard's lock.
    pub(super) fn stall<T: Spec>(&self, lane: &mut Lane<T>, stall: Stall, freed: &mut Freed) {
        match stall {
            Stall::None => {}
            Stall::Lane => self.stall_lane(lane, freed),
            Stall::Early(version) => self.stall_early(lane, version, freed),
            Stall::LaneAndEarly(version) => {
                self.stall_early(lane, version, freed);
                self.stall_lane(lane, freed);
            }
            Stall::Returned(count) => {
                let newest = lane.parked_mut().iter_mut().next_back();
                let is_stalled = |newest: &mut Parked<T>| {
                    newest.envelope.obligation.charge().standing == RoomState::Stalled
                };
                if newest.is_some_and(is_stalled) {
                    for parked in lane.parked_mut().iter_mut().take(count) {
                        self.stall_obligation(&mut parked.envelope.obligation, freed);
                    }
                }
            }
        }
    }

    /// From the back. What is stalled already is in front, so each message is visited once, and not
    /// once for every retry.
    fn stall_lane<T: Spec>(&self, lane: &mut Lane<T>, freed: &mut Freed) {
        for parked in lane.parked_mut().iter_mut().rev() {
            if !self.stall_obligation(&mut parked.envelope.obligation, freed) {
                break;
            }
        }
        // One that was out and came back stands before those that are stalled already.
        for parked in lane.parked_mut().iter_mut() {
            if !self.stall_obligation(&mut parked.envelope.obligation, freed) {
                break;
            }
        }
        if let Some(head) = lane.head_mut() {
            self.stall_obligation(&mut head.envelope.obligation, freed);
        }
    }

    fn stall_early<T: Spec>(&self, lane: &mut Lane<T>, version: u64, freed: &mut Freed) {
        if let Some(early) = lane.early_mut(version) {
            self.stall_obligation(&mut early.envelope.obligation, freed);
        }
    }

    /// Marks a message that waits outside of the lanes as stalled. Not to be called under a lock.
    pub(super) fn stall_outside<T: Spec>(&self, obligation: &mut Obligation<T>) {
        let mut freed = Freed::default();
        self.stall_obligation(obligation, &mut freed);
        self.free(freed);
    }

    /// Marks a message as stalled that waits outside of the lanes, or in one. Not under a lock if
    /// `freed` is returned at once.
    pub(super) fn stall_obligation<T: Spec>(
        &self,
        obligation: &mut Obligation<T>,
        freed: &mut Freed,
    ) -> bool {
        let claimed = self.stall_charge(obligation.charge_mut(), freed);
        if obligation
            .options()
            .is_some_and(|options| !options.merged.is_empty())
        {
            // From both ends: those between may be stalled already.
            let merged = &mut obligation.options_mut().merged;
            for merged in merged.iter_mut().rev() {
                if !self.stall_charge(merged.charge_mut(), freed) {
                    break;
                }
            }
            for merged in merged {
                if !self.stall_charge(merged.charge_mut(), freed) {
                    break;
                }
            }
        }
        claimed
    }

    fn stall_charge(&self, charge: &mut Charge, freed: &mut Freed) -> bool {
        if charge.standing != RoomState::Counted {
            return false;
        }
        let capacity = self.stalled_capacity;
        let claimed = self
            .stalled
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |stalled| {
                (stalled < capacity).then_some(stalled + 1)
            })
            .is_ok();
        if claimed {
            charge.standing = RoomState::Stalled;
            freed.messages += 1;
            freed.bytes += charge.weight() as usize;
        }
        claimed
    }

    /// A message of another size stands for this obligation from now on. Returns the bytes that are
    /// to be given back when the shard's lock is gone.
    pub(super) fn reweigh(&self, charge: &mut Charge, weight: u32) -> usize {
        let mut freed = 0;
        if let (RoomState::Counted, Some(bytes)) = (charge.standing, &self.bytes) {
            match weight.checked_sub(charge.weight()) {
                None => freed = (charge.weight() - weight) as usize,
                Some(more) => match bytes.try_acquire_many(more) {
                    Ok(permit) => permit.forget(),
                    // It was let in once and is not turned away now; it gives back what it took.
                    Err(_) => return 0,
                },
            }
        }
        charge.set_weight(weight);
        freed
    }
}

/// One more, or one less. A statistic: it orders nothing.
#[inline]
pub(super) fn change_gauge(gauge: &AtomicUsize, change: Change) {
    match change {
        Change::None => {}
        Change::Up => {
            gauge.fetch_add(1, Ordering::Relaxed);
        }
        Change::Down => {
            gauge.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
