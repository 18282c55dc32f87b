//! The source takes messages back.

use keylane_rt::clock::Instant;
use keylane_source::Generation;

use super::action::{Action, Call, Unplaced};
use super::held::{GenerationState, HeldDelivery};
use super::state::Core;
use super::trouble::later;
use crate::engine::Revoked;

impl<P: Clone + PartialEq> Core<P> {
    /// Generations end, and the source waits until nothing of them is here.
    pub(in super::super) fn revoked(&mut self, generations: Vec<Generation>, now: Instant) {
        let (ledger, actions) = (&mut self.ledger, &mut self.actions);
        let theirs = |held: &HeldDelivery<P>| generations.contains(&held.generation);
        ledger.held.end(GenerationState::Revoked, theirs);
        let what = (Some(generations), true);
        self.revocations
            .begin(what, Revoked::Unstarted, now, ledger, actions);
        self.release_finished(now);
    }

    /// Generations are over.
    pub(in super::super) fn lost(&mut self, generations: Vec<Generation>, now: Instant) {
        let (ledger, actions) = (&mut self.ledger, &mut self.actions);
        let theirs = |held: &HeldDelivery<P>| generations.contains(&held.generation);
        ledger.held.end(GenerationState::Over, theirs);
        self.revocations.lose(&generations);
        let what = (Some(generations), false);
        self.revocations
            .begin(what, Revoked::InFlight, now, ledger, actions);
        self.release_finished(now);
    }

    /// The source wants these back, if they have not started.
    pub(in super::super) fn recalled(&mut self, positions: &[P], now: Instant) {
        let live = GenerationState::Live;
        let (ledger, actions) = (&mut self.ledger, &mut self.actions);
        let held = &mut ledger.held;
        let slots = held.slots(|held| held.standing == live && positions.contains(&held.position));
        held.recall(&slots);
        ledger.take_back(slots, Revoked::Unstarted, actions);
        ledger.give_back_refused(Unplaced::Revoked, now, actions);
    }

    /// Asks whether the source has the messages that it takes back: attempts at the others end.
    pub(in super::super) fn look(&mut self) {
        if !self.terms.has_guard {
            return;
        }
        let live = GenerationState::Live;
        let ends = self.ledger.held.positions(|held| held.standing != live);
        if !ends.is_empty() {
            self.actions.push(Action::AskHeld(ends));
        }
    }

    /// The source does not have these any more: others may have their messages by now.
    pub(in super::super) fn lapsed(&mut self, slots: Vec<u32>) {
        if !slots.is_empty() {
            let how = Revoked::InFlight;
            self.ledger.held.mark(&slots);
            self.actions.push(Action::Revoke { slots, how });
        }
    }

    /// Lets the source go on with the revocations of which nothing is left, or nothing that ends.
    /// Calls come last: if one fails, nothing that was marked before it may have settled.
    pub(super) fn release_finished(&mut self, now: Instant) {
        for generations in self.revocations.take_overdue() {
            self.actions.call(Call::Release(generations));
        }
        for generations in self.revocations.take_finished(&self.ledger) {
            let again_at = later(now, self.terms.settings.confirm_every);
            self.ledger.unconfirmed.ask(again_at);
            self.actions.call(Call::Confirm);
            self.actions.call(Call::Release(generations));
        }
    }
}
