//! The next start of a lane.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{Rules, later};
use super::effects::{Effects, Left, Out, Store};
use super::plan::Sequencer;
use super::state::{State, Transition, WaitReason};
use super::{Lane, Next};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Decides what starts when a runner takes this lane out of the ready queue.
    pub fn next(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.pick(now, rules, effects);
        if !effects.removes {
            self.open_or_renew_gate(rules, effects);
        }
    }

    /// Moves on after the head has settled, in any lane. If later messages can still change what
    /// starts, the lane itself goes into the ready queue.
    pub fn advance(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if !rules.has_discipline() {
            return self.advance_plain(rules, effects);
        }
        if self.is_bare() && self.parked.is_empty() {
            // It was alone, and no plan, rate or operator keeps anything of it.
            let next = self.finish();
            effects.removes = matches!(next, Next::Remove);
            return;
        }
        self.transition(Transition::Requeue, State::Scheduled);
        if !self.parked.is_empty() && !rules.starts_at_once() {
            let class = self.parked.class();
            effects.out = Out::Lane { class };
        } else {
            self.pick(now, rules, effects);
        }
        if !effects.removes {
            self.open_or_renew_gate(rules, effects);
        }
    }

    /// The head settled in a lane without a discipline that is full, paused or has a watermark, or
    /// was.
    fn advance_plain(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        // Counting the depth is not free, and hardly any lane is full.
        if self.gate().is_some() {
            self.more.open_gate(self.depth(rules) - 1, rules, effects);
        }
        if self.is_paused() {
            self.transition(Transition::Requeue, State::Scheduled);
            return self.wait(WaitReason::Paused, None, effects);
        }
        match self.finish() {
            Next::Start(item) => effects.out = Out::Message(item),
            Next::Stay => {}
            Next::Remove => {
                self.more.remove_gate(effects);
                effects.removes = true;
            }
        }
    }

    /// Decides what starts, what is waited for, or that the lane goes.
    fn pick(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            return self.wait(WaitReason::Paused, None, effects);
        }
        while let Some(first) = self.parked.oldest() {
            if rules.expires && first.is_expired(rules.stamp(now)) {
                if let Some(expired) = self.parked.pop() {
                    effects.left.push((expired, Left::Expired));
                }
                continue;
            }
            if let Some(until) = first.delayed_until(now) {
                return self.wait(WaitReason::Delay, Some(until), effects);
            }
            break;
        }
        if self.parked.is_empty() {
            return self.vacate(now, rules, effects);
        }
        if let Some(linger) = rules.linger(self.parked.len())
            && self.more.make_plan().batch_mut().begins_to_linger()
        {
            let until = later(now, linger);
            return self.wait(WaitReason::Linger, Some(until), effects);
        }
        if let Some(limiter) = &rules.rate
            && let Err(at) = self.more.rate_mut().ask(limiter, rules.stamp(now))
        {
            let until = rules.moment(at, now);
            return self.wait(WaitReason::Rate, Some(until), effects);
        }
        self.start(now, rules, effects);
    }

    /// Nothing is parked: the lane waits for what it misses, or goes.
    pub(super) fn vacate(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if let Some(plan) = self.more.plan_mut() {
            plan.reset_batch();
        }
        if self.more.is_merging() {
            return self.wait(WaitReason::Empty, None, effects);
        }
        if let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.sequencer()) {
            if let Some((reason, until)) = sequencer.missing(sequence, now) {
                return self.wait(reason, until, effects);
            }
            // The store has to know a version that was given up before this lane goes.
            let unrecorded = sequencer.unrecorded().filter(|_| sequence.is_stored);
            if let Some(version) = unrecorded {
                effects.rare_mut().store = Some(Store::Record(version));
                return self.wait(WaitReason::Record, None, effects);
            }
        }
        self.leave(effects);
    }

    /// A waiting lane may have something to run now, or something else to wait for.
    pub(super) fn recheck(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let Some(reason) = self.state.wait_reason() else {
            return;
        };
        if self.is_paused() {
            let is_unknown = self.sequencer().is_some_and(Sequencer::is_unknown);
            if reason == WaitReason::Load && !is_unknown {
                // The store has answered: what it waits for now is `resume`.
                let paused = State::waiting(WaitReason::Paused);
                self.change_state(Transition::Wait, paused, effects);
            }
            return;
        }
        let parked = self.parked.len();
        let starts = match reason {
            WaitReason::Paused
            | WaitReason::Rate
            | WaitReason::Delay
            | WaitReason::Lease
            | WaitReason::Record => false,
            WaitReason::Linger => rules.linger(parked).is_none(),
            WaitReason::Gap | WaitReason::HaltedGap | WaitReason::Load | WaitReason::Empty => {
                parked > 0
            }
        };
        if starts {
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
            && let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.sequencer())
            && let Some((reason, until)) = sequencer.missing(sequence, now)
        {
            self.wait(reason, until, effects);
        }
    }

    /// What a lane waited with or for is gone: it is asked for its next message, or goes.
    pub(super) fn ask_again(
        &mut self,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        if self.state.wait_reason().is_none() || self.is_paused() {
            return;
        }
        if self.depth(rules) == 0 {
            self.vacate(now, rules, effects);
        } else {
            self.schedule(effects);
        }
    }
}
