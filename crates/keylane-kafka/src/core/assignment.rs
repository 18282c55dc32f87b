//! The partitions that this member of the group owns, each in its generation. Pure.

use std::sync::Arc;

use keylane_source::frontier::Limits;
use keylane_source::{Describer, Generation, Settlement};
use tokio::time::Instant;

use super::names::Names;
use super::partition::{Commit, Partition, Phase, Start};
use super::position::KafkaPosition;
use super::uncommitted::{CommitLimits, Uncommitted};
use crate::metadata::Encoded;

/// A partition and the value that belongs to it, `Q`: the queue from which it is read.
#[derive(Debug)]
pub(crate) struct Assigned<Q> {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) partition: Partition,
    pub(crate) queue: Q,
}

/// All assigned partitions, by slot. A slot is used again when its partition is gone; a generation
/// never is.
#[derive(Debug)]
pub(crate) struct Assignment<Q> {
    slots: Vec<Option<Assigned<Q>>>,
    last_generation: Generation,
    limits: Limits,
    commit_limits: CommitLimits,
    pub(crate) uncommitted: Uncommitted,
    /// Those of `slots`.
    names: Names,
}

impl<Q> Assignment<Q> {
    pub(crate) fn new(limits: Limits, commit_limits: CommitLimits) -> Self {
        Self {
            slots: Vec::new(),
            last_generation: Generation(0),
            limits,
            commit_limits,
            uncommitted: Uncommitted::default(),
            names: Names::default(),
        }
    }

    fn next_generation(&mut self) -> Generation {
        self.last_generation = Generation(self.last_generation.0 + 1);
        self.last_generation
    }

    /// Adds a partition. If a partition of the same name is still here, it was lost without notice:
    /// returns its generation.
    pub(crate) fn assign(
        &mut self,
        topic: Arc<str>,
        number: i32,
        start: Start,
        queue: Q,
    ) -> Option<Generation> {
        let before = self.find(&topic, number).map(|slot| self.remove(slot));
        let generation = self.next_generation();
        self.names.add(generation, &topic, number);
        let assigned = Some(Assigned {
            topic,
            number,
            partition: Partition::new(generation, start, self.limits),
            queue,
        });
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(free) => *free = assigned,
            None => self.slots.push(assigned),
        }
        before.flatten().map(|gone| gone.partition.generation)
    }

    /// The slot of a partition.
    pub(crate) fn find(&self, topic: &str, number: i32) -> Option<u32> {
        let is_it = |slot: &Option<Assigned<Q>>| {
            let assigned = slot.as_ref();
            assigned.is_some_and(|one| one.number == number && *one.topic == *topic)
        };
        self.slots.iter().position(is_it).map(|slot| slot as u32)
    }

    /// How many slots there are, free ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Assigned<Q>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Assigned<Q>> {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Assigned<Q>> {
        self.slots.iter_mut().flatten()
    }

    /// Returns the partition of a position, if it is still in that generation.
    #[inline]
    pub(crate) fn of(&self, position: &KafkaPosition) -> Option<&Assigned<Q>> {
        let assigned = self.slots.get(position.slot as usize)?.as_ref()?;
        (assigned.partition.generation == position.generation).then_some(assigned)
    }

    /// Describes positions: `topic/number@offset` while the generation lasts. It does not need the
    /// assignment, and follows it.
    pub(crate) fn describer(&self) -> Describer<KafkaPosition> {
        self.names.describer()
    }

    /// Applies settlements. Ignores those of a generation that is over.
    pub(crate) fn settle(&mut self, settled: &[Settlement<KafkaPosition>], now: Instant) {
        self.uncommitted.settle(self.unsaid(), now);
        for settlement in settled {
            let position = &settlement.position;
            if let Some(assigned) = self.get_mut(position.slot)
                && assigned.partition.generation == position.generation
            {
                let partition = &mut assigned.partition;
                partition.settle(position.offset, settlement.outcome);
            }
        }
    }

    /// How many records have settled that no commit contains.
    pub(crate) fn unsaid(&self) -> u64 {
        self.iter().map(|one| one.partition.unsaid()).sum()
    }

    /// Whether to hand over no more records until a commit is taken.
    pub(crate) fn is_ahead_of_commits(&self, now: Instant) -> bool {
        self.uncommitted
            .is_full(self.unsaid(), self.commit_limits, now)
    }

    /// Returns the commits that are due now, each with its partition.
    pub(crate) fn commits(&mut self) -> impl Iterator<Item = (&Assigned<Q>, Commit)> {
        self.iter_mut().filter_map(|one| {
            let commit = one.partition.commit()?;
            Some((&*one, commit))
        })
    }

    /// Records the answer of the broker to a commit: it took it with this metadata, or it did not.
    pub(crate) fn answered(
        &mut self,
        commit: &Commit,
        taken: Option<&Encoded>,
        full_from: Option<usize>,
    ) {
        let mut same = self
            .iter_mut()
            .filter(|one| one.partition.generation == commit.generation);
        if let Some(assigned) = same.next() {
            match taken {
                Some(encoded) => assigned.partition.committed(commit, encoded, full_from),
                None => assigned.partition.not_committed(commit),
            }
        }
    }

    /// Revokes these partitions. Returns the generations that must end first.
    pub(crate) fn revoke(&mut self, places: &[(String, i32)]) -> Vec<Generation> {
        let slots = places
            .iter()
            .filter_map(|(topic, number)| self.find(topic, *number));
        let slots: Vec<u32> = slots.collect();
        self.end(slots, Phase::Revoked)
    }

    /// Begins to rewind the partitions that must be read again from their frontier, because records
    /// of them were returned. Returns the generations that must end first.
    pub(crate) fn rewind(&mut self) -> Vec<Generation> {
        let slots = self.slots.iter().enumerate();
        let returned = slots.filter(|(_, slot)| {
            slot.as_ref()
                .is_some_and(|one| one.partition.has_returned())
        });
        let returned: Vec<u32> = returned.map(|(slot, _)| slot as u32).collect();
        self.end(returned, Phase::Rewinding)
    }

    fn end(&mut self, slots: Vec<u32>, phase: Phase) -> Vec<Generation> {
        let mut generations = Vec::new();
        for slot in slots {
            if let Some(assigned) = self.get_mut(slot) {
                assigned.partition.phase = phase;
                generations.push(assigned.partition.generation);
            }
        }
        generations
    }

    /// Removes these partitions, which are lost. Returns their generations.
    pub(crate) fn lose(&mut self, places: &[(String, i32)]) -> Vec<Generation> {
        let slots = places
            .iter()
            .filter_map(|(topic, number)| self.find(topic, *number));
        let slots: Vec<u32> = slots.collect();
        let gone = slots.into_iter().filter_map(|slot| self.remove(slot));
        gone.map(|gone| gone.partition.generation).collect()
    }

    /// Releases the partition of this generation, whose work has ended. Returns what is left of it:
    /// the partition begins again if it was rewinding, and is gone otherwise.
    pub(crate) fn release(&mut self, generation: Generation) -> Option<Assigned<Q>> {
        let is_it = |slot: &Option<Assigned<Q>>| {
            let assigned = slot.as_ref();
            assigned.is_some_and(|one| one.partition.generation == generation)
        };
        let slot = self.slots.iter().position(is_it)?;
        self.remove(slot as u32)
    }

    fn remove(&mut self, slot: u32) -> Option<Assigned<Q>> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        self.names.remove(gone.partition.generation);
        Some(gone)
    }

    /// Removes all partitions.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.names.clear();
        self.uncommitted = Uncommitted::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keylane_source::Outcome;
    use keylane_source::frontier::Delivered;

    use super::*;

    const COMMIT_LIMITS: CommitLimits = CommitLimits {
        records: 100,
        time: Duration::from_secs(1),
    };

    fn start(at: u64) -> Start {
        Start {
            at,
            is_committed: true,
            ..Start::default()
        }
    }

    fn assignment() -> Assignment<()> {
        let mut assignment = Assignment::new(Limits::default(), COMMIT_LIMITS);
        for number in 0..3 {
            let before = assignment.assign("orders".into(), number, start(10), ());
            assert_eq!(before, None);
        }
        assignment
    }

    fn handed_over(assignment: &mut Assignment<()>, slot: u32, offset: u64) -> KafkaPosition {
        let assigned = assignment.get_mut(slot).unwrap();
        assert_eq!(assigned.partition.deliver(offset), Ok(Delivered::Open));
        KafkaPosition {
            slot,
            generation: assigned.partition.generation,
            offset,
        }
    }

    fn done(assignment: &mut Assignment<()>, position: KafkaPosition) {
        assignment.settle(&[Settlement::new(position, Outcome::Done)], Instant::now());
    }

    fn committed(assignment: &mut Assignment<()>) -> Vec<(i32, u64)> {
        let commits = assignment.commits();
        commits
            .map(|(one, commit)| (one.number, commit.offset))
            .collect()
    }

    #[test]
    fn a_settlement_counts_for_its_own_partition() {
        let mut assignment = assignment();
        let position = handed_over(&mut assignment, 1, 10);
        done(&mut assignment, position);
        assert_eq!(assignment.unsaid(), 1);
        assert_eq!(committed(&mut assignment), [(1, 11)]);
        assert_eq!(committed(&mut assignment), []);
    }

    #[test]
    fn a_position_is_described_while_its_generation_lasts() {
        let mut assignment = assignment();
        let describer = assignment.describer();
        let position = handed_over(&mut assignment, 1, 10);
        assert_eq!(describer.describe(&position), "orders/1@10");
        assignment.assign("orders".into(), 1, start(10), ());
        let lost = "offset 10 of a partition that was lost";
        assert_eq!(describer.describe(&position), lost);
        let position = handed_over(&mut assignment, 1, 10);
        assert_eq!(describer.describe(&position), "orders/1@10");
        assignment.lose(&[("orders".to_owned(), 1)]);
        assert_eq!(describer.describe(&position), lost);
        let position = handed_over(&mut assignment, 2, 10);
        assignment.clear();
        assert_eq!(describer.describe(&position), lost);
    }

    #[test]
    fn a_settlement_of_an_older_generation_changes_nothing() {
        let mut assignment = assignment();
        let old = handed_over(&mut assignment, 1, 10);
        let places = [("orders".to_owned(), 1)];
        let generations = assignment.revoke(&places);
        assert_eq!(generations, [old.generation]);
        assert!(assignment.release(old.generation).is_some());
        assert_eq!(assignment.assign("orders".into(), 1, start(10), ()), None);
        let new = handed_over(&mut assignment, 1, 10);
        assert_eq!(new.slot, old.slot);
        done(&mut assignment, old);
        assert!(assignment.of(&old).is_none());
        assert_eq!(committed(&mut assignment), []);
        done(&mut assignment, new);
        assert_eq!(committed(&mut assignment), [(1, 11)]);
    }

    #[test]
    fn what_settles_while_a_partition_goes_is_committed() {
        let mut assignment = assignment();
        let position = handed_over(&mut assignment, 2, 10);
        assignment.revoke(&[("orders".to_owned(), 2), ("others".to_owned(), 2)]);
        assert!(!assignment.get_mut(2).unwrap().partition.takes());
        done(&mut assignment, position);
        assert_eq!(committed(&mut assignment), [(2, 11)]);
    }

    #[test]
    fn a_partition_that_comes_again_without_a_revoke_is_lost_first() {
        let mut assignment = assignment();
        let position = handed_over(&mut assignment, 0, 10);
        let before = assignment.assign("orders".into(), 0, start(10), ());
        assert_eq!(before, Some(position.generation));
        assert!(assignment.of(&position).is_none());
    }

    #[test]
    fn an_answer_to_a_commit_of_an_older_generation_changes_nothing() {
        let mut assignment = assignment();
        let position = handed_over(&mut assignment, 0, 10);
        done(&mut assignment, position);
        let commits: Vec<_> = assignment.commits().map(|(_, commit)| commit).collect();
        assignment.lose(&[("orders".to_owned(), 0)]);
        assignment.assign("orders".into(), 0, start(10), ());
        assignment.answered(&commits[0], None, None);
        assert_eq!(assignment.unsaid(), 0);
    }

    #[test]
    fn only_what_was_given_back_is_rewound() {
        let mut assignment = assignment();
        let back = handed_over(&mut assignment, 0, 10);
        let other = handed_over(&mut assignment, 1, 10);
        let returned = Outcome::returned(1);
        assignment.settle(&[Settlement::new(back, returned)], Instant::now());
        assert_eq!(assignment.rewind(), [back.generation]);
        assert_eq!(assignment.rewind(), []);
        let gone = assignment.release(back.generation).unwrap();
        assert_eq!(gone.partition.phase, Phase::Rewinding);
        assert_eq!(gone.partition.resumption().at, 10);
        assert!(assignment.of(&other).is_some());
    }
}
