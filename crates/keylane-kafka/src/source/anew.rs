//! Topics that are deleted and created again under their names.
//!
//! Commits name a topic by its name. So a commit of the old topic that is in progress when the new
//! one is created applies to the new one, and would skip its first records.

use std::collections::HashMap;
use std::sync::Arc;

use keylane_connector::Repeats;
use keylane_source::Generation;

use crate::core::Assignment;

/// By topic and number of the partition.
type Offsets = HashMap<(Arc<str>, i32), u64>;

/// The commits that were made, and those that belong to topics that are gone. It outlives the
/// sessions.
#[derive(Debug, Default)]
pub(super) struct Commits {
    last: Offsets,
    outdated: Arc<Offsets>,
    /// Commits that the broker has not taken.
    pub(super) refused: Repeats<Option<i32>>,
}

impl Commits {
    /// A commit begins.
    pub(super) fn begin(&mut self, topic: &Arc<str>, number: i32, offset: u64) {
        self.last.insert((Arc::clone(topic), number), offset);
    }

    /// Forgets a topic: another one has its name.
    pub(super) fn forget(&mut self, topic: &str) {
        let gone = self.last.extract_if(|(one, _), _| **one == *topic);
        Arc::make_mut(&mut self.outdated).extend(gone);
    }

    /// Records that a commit of this generation was taken.
    pub(super) fn commit_taken<Q>(&mut self, generation: Generation, assignment: &Assignment<Q>) {
        if self.outdated.is_empty() {
            return;
        }
        let mut all = assignment.iter();
        if let Some(one) = all.find(|one| one.partition.generation == generation) {
            self.taken(&one.topic, one.number);
        }
    }

    /// Records that the commit of this partition belongs to the current topic.
    fn taken(&mut self, topic: &Arc<str>, number: i32) {
        let place = (Arc::clone(topic), number);
        if self.outdated.contains_key(&place) {
            Arc::make_mut(&mut self.outdated).remove(&place);
        }
    }

    pub(super) fn outdated(&self) -> Arc<Offsets> {
        Arc::clone(&self.outdated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_of_a_topic_that_is_gone_is_outdated_until_the_new_one_has_a_commit() {
        let (orders, others): (Arc<str>, Arc<str>) = ("orders".into(), "others".into());
        let mut commits = Commits::default();
        commits.begin(&orders, 0, 10);
        commits.begin(&orders, 0, 12);
        commits.begin(&orders, 1, 7);
        commits.begin(&others, 0, 3);
        commits.forget("orders");
        let place = |number| (Arc::clone(&orders), number);
        assert_eq!(*commits.outdated(), [(place(0), 12), (place(1), 7)].into());
        commits.taken(&orders, 0);
        commits.taken(&others, 0);
        assert_eq!(*commits.outdated(), [(place(1), 7)].into());
        commits.begin(&orders, 1, 9);
        commits.forget("orders");
        assert_eq!(*commits.outdated(), [(place(1), 9)].into());
    }
}
