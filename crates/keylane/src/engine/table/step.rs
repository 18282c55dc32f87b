//! A step: a lane decides, and what must be seen together with its decision is applied.
//!
//! A lane decides under the lock of its shard and writes what follows into
//! [`Effects`](keylane_lanes::Effects). [`LaneTable::step`] applies the first part of them under
//! that lock; once the lock is released, it returns room and wakes the router. The rest is for
//! [`Decisions::apply`](super::super::decisions::Decisions::apply).

use keylane_lanes::{Keep, Out};
use keylane_rt::clock::{self, Instant};

use super::{LaneTable, Wait};
use crate::discipline::Forgotten;
use crate::engine::lane::{Lane, LaneEffects};
use crate::engine::room::{Freed, change_gauge};
use crate::types::{Spec, Types};

/// Work that a step leaves for the time after the lock of the shard is released. Most steps leave
/// none.
#[must_use = "room, the router and what keys remember wait for it"]
pub(crate) struct AfterUnlock<T: Types> {
    freed: Freed,
    /// The lane has drained up to its watermark.
    drained: bool,
    /// Keys to drop.
    forgotten: Option<Forgotten<T::Key>>,
    /// When rates that are remembered are to be forgotten.
    forget_at: Option<u64>,
}

impl<T: Types> Default for AfterUnlock<T> {
    fn default() -> Self {
        Self {
            freed: Freed::default(),
            drained: false,
            forgotten: None,
            forget_at: None,
        }
    }
}

impl<T: Types> AfterUnlock<T> {
    fn is_some(&self) -> bool {
        self.freed != Freed::default()
            || self.drained
            || self.forgotten.is_some()
            || self.forget_at.is_some()
    }
}

impl<T: Spec> LaneTable<T> {
    /// Takes a step in the lane of a key, if there is one. What follows is in `effects`.
    #[inline]
    pub(crate) fn step(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) -> bool {
        let make = || None;
        self.step_in(key, hash, now, make, effects, decide)
    }

    /// Takes a step in the lane of a key, which is made if there is none.
    #[inline]
    pub(crate) fn step_or_make(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) {
        let make = || Some(Lane::<T>::empty(self.recall_rate(hash, now)));
        self.step_in(key, hash, now, make, effects, decide);
    }

    #[inline]
    fn step_in(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        make: impl FnOnce() -> Option<Lane<T>>,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) -> bool {
        let mut after_unlock = None;
        let found = self.lanes.step(hash, key, make, |lane| {
            let before = Wait::of(lane);
            decide(lane, effects);
            after_unlock = self.apply_locked(lane, key, hash, now, before, effects);
            match effects.removes {
                true => Keep::Remove,
                false => Keep::Stay,
            }
        });
        if let Some(after_unlock) = after_unlock {
            self.apply_after_unlock(after_unlock);
        }
        found
    }

    /// Applies what must be seen together with the decision. Under the shard's lock. `before`: what
    /// the lane has waited for.
    #[inline]
    pub(crate) fn apply_locked(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        before: Option<Wait>,
        effects: &mut LaneEffects<T>,
    ) -> Option<AfterUnlock<T>> {
        self.waits.count(before, lane, effects.removes);
        if effects.expires_at.is_some()
            && self.clocks.wake_ups.len() >= self.settings.capacity.saturating_mul(2)
        {
            // Timers outlive what they were armed for. With too many of them, messages settle as
            // expired when a runner takes them, and not at their deadline.
            effects.expires_at = None;
            lane.parked_mut().disarm_expiry();
        }
        // A plain lane has no version, rate or watermark.
        if !effects.needs_lock() && lane.is_bare() {
            return None;
        }
        self.apply_more_locked(lane, key, hash, now, effects)
    }

    #[inline(never)]
    fn apply_more_locked(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
    ) -> Option<AfterUnlock<T>> {
        let mut after_unlock = AfterUnlock::default();
        self.room
            .stall(lane, effects.stall, &mut after_unlock.freed);
        change_gauge(&self.halted, effects.halted);
        change_gauge(&self.slow_path.paused, effects.paused);
        self.room.count_full(hash, effects.full);
        let starts = match &effects.out {
            Out::Message(item) => Some(item),
            _ => None,
        };
        after_unlock.drained = match effects.removes {
            true => lane.has_watermark(),
            false => lane.passes_watermark(starts),
        };
        if after_unlock.drained {
            // Under the lock, so that a lane without its watermark has always been reported.
            self.note_drained(key);
        }
        if effects.removes {
            let memory = lane.memory();
            after_unlock.forget_at = self.remember_rate(hash, memory.tat, now);
            after_unlock.forgotten = self.remember_version(key, hash, memory.version, now);
        }
        after_unlock.is_some().then_some(after_unlock)
    }

    /// Carries out what was seen under the lock.
    pub(crate) fn apply_after_unlock(&self, after_unlock: AfterUnlock<T>) {
        let AfterUnlock {
            freed,
            drained,
            forgotten,
            forget_at,
        } = after_unlock;
        self.room.free(freed);
        if drained {
            self.shutdown.wake_router();
        }
        if forgotten.is_some() {
            self.probe.drop_quietly(forgotten);
        }
        if let Some(at) = forget_at {
            self.forget_rates_at(at);
        }
    }

    /// The time for a decision of a lane. Reading the clock costs as much as the decision, so lanes
    /// that do not look at the time get any.
    #[inline]
    pub(crate) fn now_if(&self, depends_on_it: bool) -> Instant {
        match depends_on_it || self.slow_path.may_be_untimely() {
            true => clock::now(),
            false => self.clocks.epoch,
        }
    }
    /// Marks this version as recorded in the store, by the attempt that handled it.
    pub(crate) fn note_recorded(&self, key: Option<&T::Key>, hash: u64, version: u64) {
        let Some(key) = key else { return };
        self.lanes
            .with(hash, key, |lane| lane.note_recorded(version));
    }
}
