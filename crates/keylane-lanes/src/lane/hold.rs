//! What was out comes back to its lane: the head after a failure, or messages that did not start.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::Rules;
use super::effects::{Due, Effects, Stall};
use super::state::{State, Timer, Transition, WaitReason};
use super::{Lane, Spares};

/// The reason why a head comes back to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is tried again, or brought to the dead-letter sink again, at this time.
    Retry(Instant),
    /// Its next attempt was due at this time, and its key is paused.
    Paused(Instant),
    /// It had to go on at this time, and the lease of its key is not held.
    Unleased(Instant),
    /// It was given up on, and the policy is to stop.
    Halt,
}

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Takes back a head that may not go on now. The messages that wait with it do not count.
    pub fn hold(&mut self, head: Box<H>, hold: Hold, effects: &mut Effects<T, H, G>) {
        match hold {
            Hold::Retry(until) => {
                self.back_off(head, until);
                effects.wake = Some(Due::Backoff(until));
            }
            Hold::Paused(until) => {
                let timer = Timer::Spent;
                self.transition(Transition::BackOff, State::Backoff { until, timer, head });
            }
            Hold::Unleased(until) => {
                let timer = Timer::Unleased;
                self.transition(Transition::BackOff, State::Backoff { until, timer, head });
            }
            Hold::Halt => self.change_state(Transition::Halt, State::Halted { head }, effects),
        }
        effects.stall = Stall::Lane;
        effects.holds = true;
    }

    /// Takes back a message that was out and has not started, because its key is paused or its time
    /// has not come. The members of its batch come back with it, the first one first.
    pub fn take_back(
        &mut self,
        items: Vec<T>,
        until: Option<Instant>,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let reason = WaitReason::Delay;
        self.come_back(items, (reason, until), spares, effects);
    }

    /// Takes back a message that was out and has not started, because the lease of its key is not
    /// held. The members of its batch come back with it, the first one first.
    ///
    /// It has used nothing of its rate, and its batch does not wait for more messages again.
    pub fn wait_for_lease(
        &mut self,
        items: Vec<T>,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        self.come_back(items, (WaitReason::Lease, None), spares, effects);
        if rules.rate.is_some() {
            self.more.rate_mut().give_back();
        }
        if rules.batch().is_some_and(|batch| !batch.linger.is_zero()) {
            self.more.make_plan().batch_mut().has_lingered = true;
        }
    }

    /// Messages that were out wait in the lane: for this, or for `resume` if it is paused.
    fn come_back(
        &mut self,
        items: Vec<T>,
        (reason, until): (WaitReason, Option<Instant>),
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let (reason, until) = match self.is_paused() {
            true => (WaitReason::Paused, None),
            false => (reason, until),
        };
        for item in items.into_iter().rev() {
            self.parked.take_back(item, spares, effects);
        }
        if let Some(plan) = self.more.plan_mut() {
            plan.reset_batch();
        }
        self.wait(reason, until, effects);
    }

    /// Goes on with the lane: the lease of its key is held from now on.
    pub fn leased(&mut self, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            // `resume` lets it go.
            return;
        }
        match self.state {
            State::Waiting {
                reason: WaitReason::Lease,
                ..
            } => self.schedule(effects),
            State::Backoff {
                timer: Timer::Unleased,
                ..
            } => self.state.let_out(false, effects),
            _ => {}
        }
    }

    /// Ends a batch: these messages of it go back into the lane, in front of all others.
    pub fn end_batch(
        &mut self,
        back: Vec<T>,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        if let Some(plan) = self.more.plan_mut() {
            plan.reset_batch();
        }
        effects.stall = Stall::Returned(back.len());
        for item in back.into_iter().rev() {
            self.parked.take_back(item, spares, effects);
        }
        self.more.open_gate(self.depth(rules), rules, effects);
    }
}
