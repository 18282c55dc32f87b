//! A message comes to a lane with a discipline.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{PlanRules, Rules};
use super::effects::{Effects, Left, Stall};
use super::plan::Sequencer;
use super::state::{State, Transition, WaitReason};
use super::{Lane, Offered, Spares};

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
        if self.is_stalled() {
            effects.stall = Stall::Lane;
        }
        match &rules.plan {
            PlanRules::Fifo | PlanRules::Batch(_) => {
                // A batch that is out counts.
                let beside = self.more.as_ref().map_or(0, |more| more.plan.extra_len());
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

    /// Parks a message behind the others, in a lane that has room for this many.
    pub(super) fn park_or_turn_away(
        &mut self,
        item: T,
        capacity: usize,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        match self.park(item, capacity, rules.at_limit, spares) {
            Offered::Parked => {}
            Offered::Displaced(old) => {
                self.forget_delay();
                effects.left.push((old, Left::Displaced));
            }
            Offered::Refused(new) => effects.left.push((new, Left::Refused)),
        }
    }

    /// What is in the lane now may start, expire, or be too much: it is this deep.
    pub(super) fn after_offer(
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
            self.arm_expiry_of_newest(effects);
        }
        self.vacate_if_empty(now, rules, effects);
        effects.holds |= matches!(self.state, State::Waiting { .. });
    }

    /// A waiting lane may have something to run now, or something else to wait for.
    pub(super) fn recheck(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let Some(reason) = self.wait_reason() else {
            return;
        };
        if self.is_paused() {
            let is_unknown = self.sequencer().is_some_and(Sequencer::is_unknown);
            if reason == WaitReason::Load && !is_unknown {
                // The store has answered: what it waits for now is `resume`.
                let (reason, until) = (WaitReason::Paused, None);
                self.transition(Transition::Wait, State::Waiting { reason, until });
            }
            return;
        }
        let parked = self.parked_len();
        let starts = match reason {
            WaitReason::Paused
            | WaitReason::Rate
            | WaitReason::Delay
            | WaitReason::Lease
            | WaitReason::Record => false,
            WaitReason::Linger => rules
                .batch()
                .is_none_or(|batch| parked >= rules.full_batch(batch)),
            WaitReason::Gap | WaitReason::HaltedGap | WaitReason::Load | WaitReason::Empty => {
                parked > 0
            }
        };
        if starts {
            self.leave_halt(effects);
            if rules.starts_at_once() {
                self.pick(now, rules, effects);
            } else {
                self.schedule(effects);
            }
        } else if parked == 0
            && matches!(
                reason,
                WaitReason::Empty | WaitReason::Load | WaitReason::Gap
            )
            && let Some((reason, until)) = self.missing(now, rules)
        {
            self.wait(reason, until, effects);
        }
    }

    /// A lane in which nothing is left, and that nothing but its own messages kept, goes.
    pub(super) fn vacate_if_empty(
        &mut self,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        let keeps = !matches!(
            self.wait_reason(),
            Some(WaitReason::Empty | WaitReason::Gap | WaitReason::HaltedGap)
        );
        if !keeps && !self.is_paused() && self.depth(rules) == 0 {
            self.leave_halt(effects);
            self.vacate(now, rules, effects);
        }
    }

    /// Puts a waiting lane into the ready queue.
    pub(super) fn schedule(&mut self, effects: &mut Effects<T, H, G>) {
        self.transition(Transition::Schedule, State::Scheduled);
        effects.out = self.queued();
    }

    /// A lane that waits for an operator's decision about a gap stops doing so.
    pub(super) fn leave_halt(&mut self, effects: &mut Effects<T, H, G>) {
        if self.wait_reason() == Some(WaitReason::HaltedGap) {
            effects.halted.down();
        }
    }

    /// Another message is the first of the lane now: the wait was for the time of the one before.
    pub(super) fn forget_delay(&mut self) {
        if self.wait_reason() == Some(WaitReason::Delay) {
            let (reason, until) = (WaitReason::Empty, None);
            self.transition(Transition::Wait, State::Waiting { reason, until });
        }
    }

    /// Arms the timer of the newest message, if it expires before the one that is armed.
    fn arm_expiry_of_newest(&mut self, effects: &mut Effects<T, H, G>) {
        let newest = self.parked.as_ref().and_then(|parked| parked.back());
        if let Some(at) = newest.and_then(Item::expires_at) {
            self.arm_expiry(at, effects);
        }
    }

    /// Arms the timer of a message that expires then.
    pub(super) fn arm_expiry(&mut self, at: u64, effects: &mut Effects<T, H, G>) {
        if let Some(parked) = &mut self.parked
            && parked.expiry.is_none_or(|armed| armed > at)
        {
            parked.expiry = Some(at);
            effects.expires_at = Some(at);
        }
    }

    /// Disarms a timer that was asked for and is not armed after all: there are too many.
    pub fn disarm_expiry(&mut self) {
        if let Some(parked) = &mut self.parked {
            parked.expiry = None;
        }
    }
}
