//! A source takes messages back: what has not started is handed back.

use keylane_rt::Arc;
use keylane_rt::unwind::cloned;

use super::Engine;
use super::message::{Accepted, Held, Parked, Queued};
use super::settlement::Tally;
use super::sources::{RevokedSlots, SourceSlot};
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Hands back what this source has marked as revoked and what has not started: in the ready
    /// queue, in the lanes, among the messages without a lane, and among those that come later.
    ///
    /// What is on its way between them is found by `Starts::admit` before it starts, or when
    /// it is held again.
    pub(crate) fn sweep_revoked(self: &Arc<Self>, source: u32) {
        let revoked = self.sources.revoked_slots(source);
        let mut tally = Tally::default();
        self.sweep_ready(&mut tally, &revoked);
        self.sweep_lanes(&mut tally, &revoked);
        for held in self
            .clocks
            .laneless
            .extract(|held| self.sources.is_revoked(&held.envelope.obligation))
        {
            self.table.hand_back_held(&mut tally, None, held);
        }
        let is_revoked = |accepted: &Accepted<T>| self.sources.is_revoked(&accepted.obligation);
        for (accepted_at, accepted) in self.clocks.later.extract(is_revoked) {
            self.settlement
                .hand_back_accepted(&mut tally, accepted, accepted_at);
        }
        self.flush(&mut tally);
    }

    fn sweep_ready(self: &Arc<Self>, tally: &mut Tally, revoked: &RevokedSlots) {
        let mut shed = Vec::new();
        let taken = self.ready.extract(|queued| match queued {
            Queued::Job(job) => {
                let mut any = |at: SourceSlot| revoked.contains(at);
                job.envelope.obligation.any_source(&mut any)
            }
            Queued::Lane { .. } | Queued::Turn(_) => false,
        });
        for queued in taken {
            let Queued::Job(mut job) = queued else {
                continue;
            };
            self.sources.shed(&mut job.envelope.obligation, &mut shed);
            // As a runner would that takes it; what may start goes back into the queue.
            if let Some(next) = self.decisions.give_back_or_keep(tally, job) {
                self.enqueue(next);
            }
        }
        self.settlement.hand_back_shed(tally, shed);
    }

    fn sweep_lanes(self: &Arc<Self>, tally: &mut Tally, revoked: &RevokedSlots) {
        let has_any = |parked: &Parked<T>| {
            let mut any = |at: SourceSlot| revoked.contains(at);
            parked.envelope.obligation.any_source(&mut any)
        };
        let mut found = Vec::new();
        self.table.lanes.sweep(|key, hash, lane| {
            let early = lane.sequencer().into_iter().flat_map(|lane| lane.early());
            let holds = lane
                .state()
                .head()
                .is_some_and(|head| has_revoked(head, revoked))
                || lane.parked().iter().chain(early).any(&has_any);
            if holds {
                found.extend(cloned(key).map(|key| (key, hash)));
            }
            true
        });
        for (key, hash) in found {
            if let Some(next) = self.decisions.sweep_lane(tally, key, hash) {
                self.enqueue(next);
            }
        }
    }
}

/// Whether a message that waits after a failure is taken back.
fn has_revoked<T: Spec>(held: &Held<T>, revoked: &RevokedSlots) -> bool {
    let mut any = |at: SourceSlot| revoked.contains(at);
    held.envelope.obligation.any_source(&mut any)
}
