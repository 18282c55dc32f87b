//! A message comes to a lane with a discipline.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{PlanRules, Rules};
use super::effects::{Effects, Stall};
use super::plan::Plan;
use super::state::WaitReason;
use super::{Lane, Spares};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Takes a message. `recall` returns the memory of the key about its versions; it is called
    /// where the lane has to know it, and at most once.
    pub fn offer(
        &mut self,
        item: T,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        recall: impl FnOnce() -> Option<u64>,
        effects: &mut Effects<T, H, G>,
    ) {
        if self.state.is_stalled() {
            effects.stall = Stall::Lane;
        }
        match &rules.plan {
            PlanRules::Fifo | PlanRules::Batch(_) => {
                // A batch that is out counts.
                let beside = self.more.plan().map_or(0, Plan::extra_len);
                let capacity = rules.capacity.saturating_sub(beside);
                self.park_or_turn_away(item, capacity, rules, spares, effects);
            }
            PlanRules::Coalesce(coalesce) => {
                self.coalesce(*coalesce, item, rules, spares, effects);
            }
            PlanRules::Sequence(sequence) => {
                self.sequence(item, (now, sequence), rules, spares, recall, effects);
            }
        }
        let depth = self.depth(rules);
        if self.count_arrival(depth, rules) {
            effects.full.up();
        }
        self.after_offer(depth, now, rules, effects);
    }

    /// Takes the one message that two have become, out of the lane. The user's function did their
    /// [`merge`](super::effects::Rare::merge).
    pub fn offer_merged(
        &mut self,
        item: T,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        if let Some(plan) = self.more.plan_mut() {
            plan.end_merge();
        }
        if self.state.is_stalled() {
            effects.stall = Stall::Lane;
        }
        self.parked.push(item, spares);
        self.state.forget_delay();
        let depth = self.depth(rules);
        // If it is only one of the two.
        self.more.open_gate(depth, rules, effects);
        self.after_offer(depth, now, rules, effects);
        // The end has not looked at a lane that was merging.
        effects.holds |= !self.state.is_out();
    }

    /// What is in the lane now may start, expire, or be too much: it is this deep.
    fn after_offer(
        &mut self,
        depth: usize,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        effects.depth = depth;
        if depth > rules.capacity {
            // It came in before its sender could see the lane full. If it counted against the
            // capacity, one flooded key could take all of it from the others.
            effects.stall = effects.stall.with_lane();
        }
        self.recheck(now, rules, effects);
        if rules.expires {
            // If it waits. One that went out is checked when a runner takes it.
            let expires_at = self.parked.newest().and_then(Item::expires_at);
            self.parked.arm_expiry(expires_at, effects);
        }
        let is_kept = !matches!(
            self.state.wait_reason(),
            Some(WaitReason::Empty | WaitReason::Gap | WaitReason::HaltedGap)
        );
        if !is_kept && !self.is_paused() && self.depth(rules) == 0 {
            // Nothing but its own messages kept it, and none is left.
            self.vacate(now, rules, effects);
        }
        effects.holds |= self.state.wait_reason().is_some();
    }
}
