//! The steps that decisions are made of. Each makes one transition, and writes what follows.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::Rules;
use super::effects::{Due, Effects, Left, Out};
use super::state::{State, Transition, WaitReason};
use super::{Lane, Offered, Spares};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Goes into another state, and counts whether the lane waits for an operator's decision.
    pub(super) fn change_state(
        &mut self,
        event: Transition,
        to: State<H>,
        effects: &mut Effects<T, H, G>,
    ) {
        if self.state.is_halted() {
            effects.halted.down();
        }
        self.transition(event, to);
        if self.state.is_halted() {
            effects.halted.up();
        }
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
                self.state.forget_delay();
                effects.left.push((old, Left::Displaced));
            }
            Offered::Refused(new) => effects.left.push((new, Left::Refused)),
        }
    }

    /// Nothing of this key starts for now.
    pub(super) fn wait(
        &mut self,
        reason: WaitReason,
        until: Option<Instant>,
        effects: &mut Effects<T, H, G>,
    ) {
        self.change_state(Transition::Wait, State::Waiting { reason, until }, effects);
        effects.holds = true;
        // A gap has a timer of its own, from when it was seen.
        if reason != WaitReason::Gap {
            effects.wake = until.map(Due::Wait);
        }
        if self.state.is_stalled() {
            effects.stall = effects.stall.with_lane();
            let oldest = self.parked.oldest();
            if let Some(oldest) = oldest.filter(|_| reason != WaitReason::Rate) {
                effects.rare_mut().stalled_since = Some(oldest.accepted_at());
            }
        }
    }

    /// Puts a waiting lane into the ready queue.
    pub(super) fn schedule(&mut self, effects: &mut Effects<T, H, G>) {
        self.change_state(Transition::Schedule, State::Scheduled, effects);
        let class = self.parked.class();
        effects.out = Out::Lane { class };
    }

    /// The first of the parked messages, and all that start with it, are out from here on.
    pub(super) fn start(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.change_state(Transition::Start, State::Ready, effects);
        let Some(mut head) = self.parked.pop() else {
            unreachable!("a lane that starts has something parked")
        };
        if let Some(batch) = rules.batch() {
            let mut members = Vec::new();
            while members.len() + 1 < batch.max
                && let Some(next) = self.parked.oldest()
                && !(rules.expires && next.is_expired(rules.stamp(now)))
                && next.delayed_until(now).is_none()
            {
                members.extend(self.parked.pop());
            }
            if let Some(plan) = self.more.plan_mut() {
                plan.reset_batch();
            }
            if !members.is_empty() {
                self.more.make_plan().batch_mut().members = members.len();
                head.set_members(members);
            }
        }
        effects.out = Out::Message(head);
    }

    /// The lane goes.
    pub(super) fn leave(&mut self, effects: &mut Effects<T, H, G>) {
        let has_parked = !self.parked.is_empty();
        self.state.check(Transition::Leave, has_parked);
        if self.state.is_halted() {
            effects.halted.down();
        }
        self.more.remove_gate(effects);
        effects.removes = true;
    }
}
