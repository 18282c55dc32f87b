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
use super::Lane;
use super::effects::Effects;
use super::more::More;

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Returns the gate of this lane, if it is full.
    #[inline]
    pub fn gate(&self) -> Option<&G> {
        self.more.full().map(Full::gate)
    }

    /// Counts a message that came in; the lane is this deep now. Returns whether it became full
    /// with it.
    #[inline]
    pub fn count_arrival(&mut self, depth: usize, rules: &Rules) -> bool {
        if let Some(full) = self.more.full_mut() {
            full.count_arrival();
            return false;
        }
        if depth < rules.capacity || !rules.has_gates() {
            return false;
        }
        self.more.set_full(Full::new(0));
        true
    }

    /// Opens the gate after the lane has decided what to run.
    ///
    /// A lane that waits for a version gets a new gate: the senders at the old one look again, and
    /// one of them may bring that version.
    pub fn open_or_renew_gate(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if self.more.full().is_none() {
            return;
        }
        let depth = self.depth(rules);
        if depth == 0 || !self.state.waits_for_version() {
            return self.more.open_gate(depth, rules, effects);
        }
        if let Some(full) = self.more.full_mut() {
            effects.opening = full.renew(depth, rules.capacity);
        }
    }

    /// Lets all senders at the gate look again where to go.
    pub fn renew_gate(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let Some(old) = self.more.take_full() else {
            return;
        };
        // What was granted and has not arrived makes the lane deeper, as all that is on its way
        // does.
        let room = rules.capacity.saturating_sub(self.depth(rules));
        self.more.set_full(Full::new(room));
        effects.opening = old.close();
    }
}

impl<T: Item, G: Gate> More<T, G> {
    /// Opens the gate for a lane that is about to be this deep.
    pub(super) fn open_gate<H>(
        &mut self,
        depth: usize,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        let Some(full) = self.full_mut() else { return };
        if depth == 0 || (full.is_unclaimed() && depth <= rules.capacity / 2) {
            return self.remove_gate(effects);
        }
        let opening = full.grant(depth, rules.capacity);
        if let Opening::Grant(..) = opening {
            effects.opening = opening;
        }
    }

    /// Removes the gate.
    pub(super) fn remove_gate<H>(&mut self, effects: &mut Effects<T, H, G>) {
        if let Some(full) = self.take_full() {
            effects.full.down();
            effects.opening = full.close();
        }
    }
}
