//! Taking back messages whose generation ends.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::Generation;

use super::action::{Action, Call, Unplaced};
use super::held::GenerationState;
use super::revocation::{Due, Revocation};
use super::state::Core;
use super::trouble::later;
use crate::engine::Revoked;
use crate::watching::SourceEvent;

impl<P: Clone + PartialEq> Core<P> {
    /// Generations end, and the source waits until nothing of them is here.
    pub(in super::super) fn revoked(&mut self, generations: Vec<Generation>, now: Instant) {
        let theirs = |of| generations.contains(&of);
        let state = GenerationState::Revoked;
        self.held.end(state, |held| theirs(held.generation));
        self.begin_revocation(Some(generations), true, Revoked::Unstarted, now);
        self.release_finished(now);
    }

    /// Generations are over.
    pub(in super::super) fn lost(&mut self, generations: Vec<Generation>, now: Instant) {
        let theirs = |of| generations.contains(&of);
        let state = GenerationState::Over;
        self.held.end(state, |held| theirs(held.generation));
        // What is lost while it is being revoked is not waited for any more.
        for revocation in &mut self.revocations {
            let mut revoked = revocation.generations.iter().flatten();
            let are_lost = revoked.all(|revoked| generations.contains(revoked));
            revocation.is_told &= !are_lost;
        }
        self.begin_revocation(Some(generations), false, Revoked::InFlight, now);
        self.release_finished(now);
    }

    /// The source wants these back, if they have not started.
    pub(in super::super) fn recalled(&mut self, positions: &[P]) {
        let live = GenerationState::Live;
        let slots = self
            .held
            .slots(|held| held.standing == live && positions.contains(&held.position));
        self.held.recall(&slots);
        self.take_back(slots, Revoked::Unstarted);
        self.give_back_revoked();
    }

    /// The source does not have these any more: others may have their messages by now.
    pub(in super::super) fn lapsed(&mut self, slots: Vec<u32>) {
        if !slots.is_empty() {
            let how = Revoked::InFlight;
            self.held.mark(&slots);
            self.actions.push(Action::Revoke { slots, how });
        }
    }

    /// Asks whether the source has the messages that it takes back: attempts at the others end.
    pub(in super::super) fn ask_held(&mut self) {
        if !self.terms.has_guard {
            return;
        }
        let live = GenerationState::Live;
        let ends = self.held.positions(|held| held.standing != live);
        if !ends.is_empty() {
            self.actions.push(Action::AskHeld(ends));
        }
    }

    /// `how`: whether attempts in flight end now, or have time.
    pub(super) fn begin_revocation(
        &mut self,
        generations: Option<Vec<Generation>>,
        is_told: bool,
        how: Revoked,
        now: Instant,
    ) {
        let within = match how {
            Revoked::InFlight => Duration::ZERO,
            _ => self.terms.settings.revoke_within,
        };
        let revocation = Revocation::new(generations, is_told, now, within);
        let slots = revocation.slots(&self.held);
        let messages = slots.len();
        self.actions
            .push(Action::Notify(SourceEvent::Revoked { messages }));
        self.revocations.push(revocation);
        self.take_back(slots, how);
        self.give_back_revoked();
    }

    /// Marks messages as taken back, and looks for those that have not started.
    fn take_back(&mut self, slots: Vec<u32>, how: Revoked) {
        self.held.mark(&slots);
        self.actions.push(Action::Revoke { slots, how });
        self.actions.push(Action::Sweep);
    }

    /// Gives back what is taken back and in no lane yet.
    fn give_back_revoked(&mut self) {
        let mut unplaceable = std::mem::take(&mut self.unplaceable);
        let back = unplaceable.extract_if(.., |(_, slot)| self.goes_back(Some(*slot)));
        let back = back.map(|(_, slot)| slot).collect();
        self.unplaceable = unplaceable;
        let back = Action::GiveBack(back, Unplaced::Revoked);
        self.actions.push(back);
    }

    /// Does what is due for the revocations by the clock.
    pub(super) fn follow_revocations(&mut self, now: Instant) {
        let mut is_swept = false;
        for at in 0..self.revocations.len() {
            let due = self.revocations[at].due(now);
            if due == Due::Nothing {
                continue;
            }
            let slots = self.revocations[at].slots(&self.held);
            match due {
                Due::Nothing => {}
                Due::Sweep => {
                    self.take_back(slots, Revoked::Unstarted);
                    is_swept = true;
                }
                Due::Drop => self.take_back(slots, Revoked::InFlight),
                Due::GiveUp => self.give_up(at, slots.len()),
            }
        }
        if is_swept {
            self.ask_held();
        }
        self.release_finished(now);
    }

    /// Goes on although attempts of a revocation have not ended: handlers that block their threads.
    /// Their outcomes come, and are not told.
    ///
    /// The revocation itself stays until they have ended: what of it has not started must not start
    /// now.
    fn give_up(&mut self, at: usize, messages: usize) {
        let revocation = &mut self.revocations[at];
        let over = GenerationState::Over;
        self.held.end(over, |held| revocation.concerns(held));
        self.actions
            .push(Action::Notify(SourceEvent::Overdue { messages }));
        let is_told = std::mem::take(&mut revocation.is_told);
        if let Some(generations) = revocation.generations.clone().filter(|_| is_told) {
            self.actions.call(Call::Release(generations));
        }
    }

    /// Lets the source go on with the revocations of which nothing is left.
    pub(super) fn release_finished(&mut self, now: Instant) {
        let held = &self.held;
        let finished = self
            .revocations
            .extract_if(.., |revocation| revocation.slots(held).is_empty());
        for revocation in finished {
            if let Some(generations) = revocation.generations.filter(|_| revocation.is_told) {
                let again_at = later(now, self.terms.settings.confirm_every);
                self.unconfirmed.ask(again_at);
                self.actions.call(Call::Confirm);
                self.actions.call(Call::Release(generations));
            }
        }
    }
}
