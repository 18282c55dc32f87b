//! A lane is emptied, because the dispatcher ends.

use std::fmt;

use super::super::gate::Gate;
use super::super::item::Item;
use super::Lane;
use super::effects::Effects;
use super::plan::Sequencer;
use super::state::{Transition, WaitReason};

/// The contents of a lane.
pub struct Evicted<T: Item, H, G> {
    /// The head, if the lane had it.
    pub head: Option<Box<H>>,
    /// The messages behind it, in order.
    pub parked: Vec<T>,
    /// The counts of the lane, and the senders at its gate.
    pub effects: Effects<T, H, G>,
}

// The messages are the user's: they are not shown, and need not be showable.
impl<T: Item, H, G> fmt::Debug for Evicted<T, H, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evicted")
            .field("has_head", &self.head.is_some())
            .field("parked", &self.parked.len())
            .finish_non_exhaustive()
    }
}

impl<T, H, G> Lane<T, H, G> {
    /// Returns everything the lane holds, the head first if it is here. A lane that is out stays.
    pub fn hand_back(&mut self) -> (Option<Box<H>>, Vec<T>) {
        let has_parked = !self.parked.is_empty();
        self.state.check(Transition::HandBack, has_parked);
        let head = self.state.take_head();
        let mut parked: Vec<T> = std::iter::from_fn(|| self.parked.pop()).collect();
        if let Some(plan) = self.more.plan_mut() {
            plan.forget_lingering();
            let sequencer = plan.sequencer_mut();
            parked.extend(sequencer.into_iter().flat_map(Sequencer::take_early));
        }
        (head, parked)
    }
}

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Takes everything out, and the counts of the lane with it. The lane is not paused any more.
    pub fn evict(&mut self) -> Evicted<T, H, G> {
        let mut effects = Effects::new();
        self.more.remove_gate(&mut effects);
        if self.more.unpause() {
            effects.paused.down();
        }
        if self.state.is_halted() {
            effects.halted.down();
        }
        let (head, parked) = self.hand_back();
        Evicted {
            head,
            parked,
            effects,
        }
    }

    /// Closes the lane: those at the gate are let go, and a batch waits for no more messages.
    pub fn close(&mut self, effects: &mut Effects<T, H, G>) {
        self.more.remove_gate(effects);
        if self.state.wait_reason() == Some(WaitReason::Linger) {
            self.schedule(effects);
        }
    }
}
