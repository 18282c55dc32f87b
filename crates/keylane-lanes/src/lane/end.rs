//! A lane is emptied, because the dispatcher ends.

use std::fmt;

use super::super::gate::Gate;
use super::super::item::Item;
use super::Lane;
use super::effects::Effects;
use super::plan::Sequencer;
use super::state::{State, Transition};

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
        self.check(Transition::HandBack);
        let head = self.take_head();
        let mut parked: Vec<T> = std::iter::from_fn(|| self.pop()).collect();
        if let Some(more) = self.more.as_deref_mut() {
            more.plan.forget_lingering();
            let sequencer = more.plan.sequencer_mut();
            parked.extend(sequencer.into_iter().flat_map(Sequencer::take_early));
        }
        (head, parked)
    }
}

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Takes everything out, and the counts of the lane with it. The lane is not paused any more.
    pub fn evict(&mut self) -> Evicted<T, H, G> {
        let mut effects = Effects::new();
        self.remove_gate(&mut effects);
        self.forget_pause(&mut effects);
        if self.is_halted() {
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
        self.remove_gate(effects);
        if let State::Waiting {
            reason: super::WaitReason::Linger,
            ..
        } = self.state
        {
            self.schedule(effects);
        }
    }
}
