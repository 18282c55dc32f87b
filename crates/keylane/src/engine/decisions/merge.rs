//! Makes one message of several, as the user's function says.

use keylane_lanes::Few;
use keylane_rt::unwind::caught;

use super::Decisions;
use crate::engine::end::HandedBack;
use crate::engine::message::{Envelope, Parked};
use crate::engine::settlement::{Outcome, Tally};
use crate::error::Failure;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Merges messages outside of their lane, because the merge function is user code.
    pub(crate) fn merge(
        &self,
        tally: &mut Tally,
        (waited, newcomers): (Parked<T>, Few<Parked<T>>),
    ) -> Parked<T> {
        let merge_two = |waited, newcomer| self.merge_two(tally, waited, newcomer);
        newcomers.into_iter().fold(waited, merge_two)
    }

    fn merge_two(&self, tally: &mut Tally, waited: Parked<T>, newcomer: Parked<T>) -> Parked<T> {
        let merge = self.settings.discipline.merge();
        let merge = merge.expect("only lanes that merge have something to merge");
        match caught(|| merge(&waited.message, &newcomer.message)) {
            Ok(message) => {
                let Envelope {
                    accepted_at,
                    obligation,
                } = waited.envelope;
                let mut envelope = newcomer.envelope;
                envelope.accepted_at = accepted_at;
                envelope.obligation.absorb_older(obligation);
                self.probe.drop_quietly(waited.message);
                self.probe.drop_quietly(newcomer.message);
                Parked { message, envelope }
            }
            Err(text) => {
                self.probe.counters.panics.add(1);
                let failure = Failure::Panicked(text);
                if newcomer.envelope.obligation.source().is_some() {
                    // Its source gives it again.
                    self.probe.drop_quietly(failure);
                    let back = HandedBack::idle(None, newcomer.message, 0);
                    self.settlement.hand_back(tally, back, newcomer.envelope);
                    return waited;
                }
                self.probe.drop_quietly(newcomer.message);
                self.settlement
                    .settle(tally, newcomer.envelope, Outcome::Discarded(failure));
                waited
            }
        }
    }
}
