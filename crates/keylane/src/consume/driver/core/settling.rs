//! Telling the source which messages have settled.

use keylane_rt::clock::Instant;
use keylane_source::{Outcome, Settlement};

use super::action::Call;
use super::held::GenerationState;
use super::state::Core;
use super::trouble::later;

impl<P: Clone + PartialEq> Core<P> {
    /// What has settled is about to be read.
    pub(in super::super) fn reads_settled(&mut self, now: Instant) {
        self.settled_at = now;
    }

    /// These messages have settled.
    pub(in super::super) fn settled(
        &mut self,
        settled: impl Iterator<Item = (u32, Outcome)>,
        now: Instant,
    ) {
        let (ends, is_open) = (self.phase.stops(), self.phase.is_open());
        let mut told = std::mem::take(&mut self.spare);
        let acked = self.counts.acked;
        for (slot, outcome) in settled {
            let Some(held) = self.held.remove(slot) else {
                debug_assert!(false, "a message settles once");
                continue;
            };
            let is_over = held.standing == GenerationState::Over || !is_open;
            let ends = ends || held.standing != GenerationState::Live;
            self.counts.settle(outcome, is_over, ends);
            if !is_over {
                told.push(Settlement::new(held.position, outcome));
            }
        }
        self.publish();
        if told.is_empty() {
            self.spare = told;
        } else {
            let confirm_at = later(now, self.terms.settings.confirm_every);
            self.unconfirmed.tell(self.counts.acked - acked, confirm_at);
            self.actions.call(Call::Settle(told));
        }
        self.release_finished(now);
    }

    /// The position of a message whose dead letter its source keeps. `None`: its generation has
    /// ended.
    pub(in super::super) fn letter_of(&self, slot: u32) -> Option<P> {
        let held = self.held.get(slot)?;
        let is_told = held.standing != GenerationState::Over && self.phase.is_open();
        is_told.then(|| held.position.clone())
    }

    /// The source keeps a dead letter of this message.
    pub(in super::super) fn letter_kept(&mut self, slot: u32) {
        self.held.mark(&[slot]);
    }
}
