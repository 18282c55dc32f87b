//! Messages in a lane that their source has taken back.

use keylane_lanes::Effects;
use keylane_rt::clock;
use keylane_rt::unwind::caught;

use super::Decisions;
use crate::engine::lane::Lane;
use crate::engine::message::{Held, Parked, Queued};
use crate::engine::settlement::Tally;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    pub(crate) fn sweep_lane(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
    ) -> Option<Queued<T>> {
        let is_revoked = |parked: &Parked<T>| self.sources.is_revoked(&parked.envelope.obligation);
        let is_head_revoked = |held: &Held<T>| {
            let obligation = &held.envelope.obligation;
            self.sources
                .is_revoked(obligation)
                .then(|| obligation.version())
        };
        // A panic of the key's own `Eq` or `Clone`.
        let swept = caught(|| {
            let now = clock::now();
            let mut effects = Effects::new();
            let mut shed = Vec::new();
            let there = self
                .table
                .step(&key, hash, now, &mut effects, |lane, effects| {
                    for parked in lane.parked_mut().iter_mut() {
                        self.sources
                            .shed(&mut parked.envelope.obligation, &mut shed);
                    }
                    if let Some(head) = lane.head_mut() {
                        self.sources.shed(&mut head.envelope.obligation, &mut shed);
                    }
                    let rules = &self.table.rules;
                    lane.revoke(&is_revoked, &is_head_revoked, now, rules, effects);
                });
            self.settlement.hand_back_shed(tally, shed);
            there
                .then(|| self.apply_quiet(tally, key, hash, &mut effects))
                .flatten()
        });
        swept.unwrap_or_else(|_| {
            self.settlement.count_lost_messages();
            None
        })
    }

    /// Hands the head of a lane back that was just put there, if it was taken back on its way:
    /// nothing was found of it then, and a source that recalls it does so once.
    pub(crate) fn sweep_head(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
    ) -> Option<Queued<T>> {
        let is_revoked = |lane: &mut Lane<T>| {
            let head = lane.head_mut();
            head.is_some_and(|head| self.sources.is_revoked(&head.envelope.obligation))
        };
        match self.table.lanes.with(hash, &key, is_revoked) {
            Some(true) => self.sweep_lane(tally, key, hash),
            _ => None,
        }
    }
}
