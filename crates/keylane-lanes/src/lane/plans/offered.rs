//! The result of an offer.

use super::super::plan::Sequencer;
use super::super::testing::{Message, TestEffects, TestLane, rare};
use super::super::{Left, Phase};
use crate::rules::{AtLimit, PlanRules, Rules, SequenceRules, Survivor};
use crate::sequence::OnGap;

/// What a lane was like before a message came.
pub(super) struct Before {
    id: u32,
    waits: Option<u32>,
    is_full: bool,
    /// It is early, and none of its version is here.
    is_early: bool,
    early: usize,
    is_unknown: bool,
}

impl Before {
    pub(super) fn of(lane: &TestLane, message: &Message, rules: &Rules) -> Self {
        let sequencer = lane.sequencer();
        let gaps = rules.sequence().is_some_and(SequenceRules::has_gaps);
        Self {
            id: message.id,
            waits: lane.parked().iter().last().map(|waits| waits.id),
            is_full: rules.at_limit != AtLimit::Park && lane.depth(rules) >= rules.capacity,
            is_early: sequencer.is_some_and(|sequencer| {
                sequencer.is_early(message.version, gaps) && !sequencer.has(message.version)
            }),
            early: sequencer.map_or(0, Sequencer::early_len),
            is_unknown: sequencer.is_none_or(Sequencer::is_unknown),
        }
    }

    /// What came of the message.
    pub(super) fn check(&self, lane: &TestLane, effects: &TestEffects, rules: &Rules) {
        let left: Vec<_> = effects
            .left
            .as_slice()
            .iter()
            .map(|(left, why)| (left.id, *why))
            .collect();
        let bodies = &rare(effects).bodies;
        let merges = rare(effects).merge.as_ref();
        let merges = merges.map(|(waited, newcomers)| match newcomers.as_slice() {
            [newcomer] => (waited.id, newcomer.id),
            _ => panic!("one comes at a time"),
        });
        if merges.is_some() {
            assert!(!effects.removes, "the lane goes before they are one");
        }
        let enters = matches!(lane.state().phase(), Phase::Entered);
        match (&rules.plan, self.waits) {
            (PlanRules::Coalesce(coalesce), _)
                if enters && coalesce.survivor == Survivor::Merged =>
            {
                let is_quiet = left.is_empty() && bodies.is_empty() && merges.is_none();
                assert!(is_quiet, "the first of what waits is not there");
            }
            (PlanRules::Coalesce(coalesce), Some(waits)) => {
                let new = self.id;
                let shares = coalesce.shares && !self.is_full;
                let (expected_left, expected_bodies, expected_merge) = match coalesce.survivor {
                    Survivor::First if shares => (None, Some(new), None),
                    Survivor::First => (Some((new, Left::Declined)), None, None),
                    Survivor::Latest if shares => (None, Some(waits), None),
                    Survivor::Latest => (Some((waits, Left::Superseded)), None, None),
                    Survivor::Merged if !self.is_full => (None, None, Some((waits, new))),
                    Survivor::Merged if rules.at_limit == AtLimit::Refuse => {
                        (Some((new, Left::Refused)), None, None)
                    }
                    Survivor::Merged => (Some((waits, Left::Displaced)), None, None),
                };
                let expired = |(_, why): &(u32, Left)| *why == Left::Expired;
                let left: Vec<_> = left.into_iter().filter(|left| !expired(left)).collect();
                assert_eq!(left, Vec::from_iter(expected_left));
                assert_eq!(*bodies, Vec::from_iter(expected_bodies));
                assert_eq!(merges, expected_merge);
            }
            (PlanRules::Coalesce(_), None) => {
                assert!(bodies.is_empty() && merges.is_none(), "nothing waits");
            }
            (PlanRules::Sequence(sequence), _) => {
                let refused = left.contains(&(self.id, Left::Refused));
                assert!(refused || !self.is_early || !self.is_full, "it is too much");
                assert!(!refused || self.is_full, "there is room");
                let early = lane.sequencer().map_or(0, Sequencer::early_len);
                let gives_up = sequence.on_gap != OnGap::Halt && lane.sequencer().is_some();
                if rare(effects).gap.is_some() {
                    assert!(self.early >= sequence.early, "it is given up too early");
                } else if gives_up && !self.is_unknown && early > self.early {
                    assert!(early <= sequence.early, "too many are early");
                }
            }
            (PlanRules::Fifo | PlanRules::Batch(_), _) => {}
        }
    }
}
