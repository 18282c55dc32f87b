//! A source takes messages back: what has not started is handed back.

use keylane_lanes::Effects;
use keylane_rt::unwind::{caught, cloned};
use keylane_rt::{Arc, clock};

use super::message::{Accepted, Held, Parked, Queued};
use super::outcome::Tally;
use super::sources::{RevokedSlots, SourceSlot};
use super::{Engine, Lane};
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Hands back what this source has marked as revoked and what has not started: in the ready
    /// queue, in the lanes, among the messages without a lane, and among those that come later.
    ///
    /// What is on its way between them is found by [`admit`](Self::admit) before it starts, or when
    /// it is held again.
    pub(crate) fn sweep_revoked(self: &Arc<Self>, source: u32) {
        let revoked = self.sources.revoked_slots(source);
        let mut tally = Tally::default();
        self.sweep_ready(&mut tally, &revoked);
        self.sweep_lanes(&mut tally, &revoked);
        for held in self
            .clocks
            .laneless
            .extract(|held| self.is_revoked(&held.envelope.obligation))
        {
            self.hand_back_held(&mut tally, None, held);
        }
        let is_revoked = |accepted: &Accepted<T>| self.is_revoked(&accepted.obligation);
        for (accepted_at, accepted) in self.clocks.later.extract(is_revoked) {
            self.hand_back_accepted(&mut tally, accepted, accepted_at);
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
            Queued::Lane { .. } => false,
        });
        for queued in taken {
            let Queued::Job(mut job) = queued else {
                continue;
            };
            self.shed(&mut job.envelope.obligation, &mut shed);
            // As a runner would that takes it; what may start goes back into the queue.
            if let Some(next) = self.give_back_or_keep(tally, job) {
                self.enqueue(next);
            }
        }
        self.hand_back_shed(tally, shed);
    }

    fn sweep_lanes(self: &Arc<Self>, tally: &mut Tally, revoked: &RevokedSlots) {
        let has_any = |parked: &Parked<T>| {
            let mut any = |at: SourceSlot| revoked.contains(at);
            parked.envelope.obligation.any_source(&mut any)
        };
        let mut found = Vec::new();
        self.lanes.sweep(|key, hash, lane| {
            let early = lane.sequencer().into_iter().flat_map(|lane| lane.early());
            let head = lane.state().head();
            let holds = head.is_some_and(|head| has_revoked(head, revoked))
                || lane.parked().iter().chain(early).any(&has_any);
            if holds {
                found.extend(cloned(key).map(|key| (key, hash)));
            }
            true
        });
        for (key, hash) in found {
            self.sweep_lane(tally, key, hash);
        }
    }

    fn sweep_lane(self: &Arc<Self>, tally: &mut Tally, key: T::Key, hash: u64) {
        let is_revoked = |parked: &Parked<T>| self.is_revoked(&parked.envelope.obligation);
        let is_head_revoked = |held: &Held<T>| {
            let obligation = &held.envelope.obligation;
            self.is_revoked(obligation).then(|| obligation.version())
        };
        // A panic of the key's own `Eq` or `Clone`.
        let swept = caught(|| {
            let now = clock::now();
            let mut effects = Effects::new();
            let mut shed = Vec::new();
            let there = self.step(&key, hash, now, &mut effects, |lane, effects| {
                for parked in lane.parked_mut().iter_mut() {
                    self.shed(&mut parked.envelope.obligation, &mut shed);
                }
                if let Some(head) = lane.head_mut() {
                    self.shed(&mut head.envelope.obligation, &mut shed);
                }
                let rules = &self.rules;
                lane.revoke(&is_revoked, &is_head_revoked, now, rules, effects);
            });
            self.hand_back_shed(tally, shed);
            if there {
                self.apply_and_enqueue(tally, key, hash, &mut effects);
            }
        });
        if swept.is_err() {
            self.count_lost_messages();
        }
    }

    /// Hands the head of a lane back that was just put there, if it was taken back on its way:
    /// nothing was found of it then, and a source that recalls it does so once.
    pub(super) fn sweep_head(self: &Arc<Self>, tally: &mut Tally, key: T::Key, hash: u64) {
        let is_revoked = |lane: &mut Lane<T>| {
            let head = lane.head_mut();
            head.is_some_and(|head| self.is_revoked(&head.envelope.obligation))
        };
        if self.lanes.with(hash, &key, is_revoked) == Some(true) {
            self.sweep_lane(tally, key, hash);
        }
    }
}

/// Whether a message that waits after a failure is taken back.
fn has_revoked<T: Spec>(held: &Held<T>, revoked: &RevokedSlots) -> bool {
    let mut any = |at: SourceSlot| revoked.contains(at);
    held.envelope.obligation.any_source(&mut any)
}
