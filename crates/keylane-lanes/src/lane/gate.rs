//! The gate at which the senders of a full lane wait.
//!
//! A lane that reaches its capacity gets a gate: a semaphore without permits. Every settlement of
//! that lane that makes room grants one permit, so senders come in one by one, in the order in
//! which they came to the gate, and none is woken in vain. A sender that gives up returns its
//! permit, and the next one gets it. The gate goes when the lane is half empty and no sender waits,
//! or when the lane goes.

use super::super::gate::{Full, Gate, Opening};
use super::super::item::Item;
use super::super::rules::Rules;
use super::effects::Effects;
use super::{Lane, WaitReason};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Returns the gate of this lane, if it is full.
    #[inline]
    pub fn gate(&self) -> Option<&G> {
        self.more.as_ref()?.full.as_ref().map(|full| &full.gate)
    }

    /// Counts a message that came in; the lane is this deep now. Returns whether it became full
    /// with it.
    #[inline]
    pub fn count_arrival(&mut self, depth: usize, rules: &Rules) -> bool {
        if let Some(full) = self.full() {
            full.granted = full.granted.saturating_sub(1);
            return false;
        }
        if depth < rules.capacity || !rules.has_gates() {
            return false;
        }
        self.set_full(0);
        true
    }

    /// Counts a head that is about to leave this lane for good.
    #[inline]
    pub fn count_departure(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        // Counting the depth is not free, and hardly any lane is full.
        if self.gate().is_some() {
            self.open_gate(self.depth(rules) - 1, rules, effects);
        }
    }

    /// Opens the gate for a lane that is about to be this deep.
    pub fn open_gate(&mut self, depth: usize, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let Some(full) = self.full() else { return };
        // Permits were granted and no sender took one: none waits.
        let unclaimed = full.granted > 0 && full.gate.available() == full.granted;
        if depth == 0 || (unclaimed && depth <= rules.capacity / 2) {
            return self.remove_gate(effects);
        }
        let room = rules.capacity.saturating_sub(depth + full.granted);
        if room > 0 {
            full.granted += room;
            effects.opening = Opening::Grant(full.gate.clone(), room);
        }
    }

    /// Opens the gate after the lane has decided what to run.
    ///
    /// A lane that waits for a version gets a new gate: the senders at the old one look again, and
    /// one of them may bring that version.
    pub fn open_or_renew_gate(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if self.gate().is_none() {
            return;
        }
        let depth = self.depth(rules);
        if depth == 0 || !self.waits_for_version() {
            return self.open_gate(depth, rules, effects);
        }
        let Some(full) = self.full() else { return };
        let on_their_way = full.granted.saturating_sub(full.gate.available());
        let room = rules.capacity.saturating_sub(depth + on_their_way);
        full.granted = on_their_way + room;
        let old = std::mem::replace(&mut full.gate, G::with_permits(room));
        effects.opening = Opening::Close(old);
    }

    /// Lets all senders at the gate look again where to go.
    pub fn renew_gate(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let Some(old) = self.take_full() else { return };
        // What was granted and has not arrived makes the lane deeper, as all that is on its way
        // does.
        let room = rules.capacity.saturating_sub(self.depth(rules));
        self.set_full(room);
        effects.opening = Opening::Close(old.gate);
    }

    /// Removes the gate.
    pub fn remove_gate(&mut self, effects: &mut Effects<T, H, G>) {
        if let Some(full) = self.take_full() {
            effects.full.down();
            effects.opening = Opening::Close(full.gate);
        }
    }

    /// Returns whether the lane waits for a version that has not come, and no message of it runs.
    pub fn waits_for_version(&self) -> bool {
        let reason = self.wait_reason();
        matches!(reason, Some(WaitReason::Gap | WaitReason::HaltedGap))
    }

    fn set_full(&mut self, permits: usize) {
        let gate = G::with_permits(permits);
        self.more_mut().full = Some(Full {
            gate,
            granted: permits,
        });
    }

    fn full(&mut self) -> Option<&mut Full<G>> {
        self.more.as_mut()?.full.as_mut()
    }

    fn take_full(&mut self) -> Option<Full<G>> {
        self.more.as_mut()?.full.take()
    }
}
