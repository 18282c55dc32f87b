//! Failures of partitions while the others go on.

use std::collections::BTreeMap;

use keylane_connector::{PartFailure, Parts};
use keylane_source::Deliveries;

/// The current failures, by the names of the partitions.
#[derive(Debug, Default)]
pub(super) struct Failures {
    parts: Parts<String>,
    troubles: BTreeMap<String, Trouble>,
}

/// The problem of a partition, by the signal that shows its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The brokers say that it has no leader.
    NoLeader,
    /// Its leader does not answer.
    Silent,
    /// Its records cannot be read, or its start is not known.
    Unread,
}

impl Failures {
    /// Records that a partition fails. It is tried again.
    pub(super) fn fail(&mut self, name: &str, trouble: Trouble, why: String) {
        let known = self.troubles.entry(name.to_owned()).or_insert(trouble);
        *known = trouble.max(*known);
        self.parts.fail(name.to_owned(), why);
    }

    /// Ends this trouble of a partition: it is over, or the partition is not ours any more.
    pub(super) fn recover(&mut self, name: &str, from: Trouble) {
        if self
            .troubles
            .get(name)
            .is_some_and(|trouble| *trouble <= from)
        {
            self.troubles.remove(name);
            self.parts.recover(&name.to_owned());
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<PartFailure> {
        self.troubles.get(name)?;
        self.parts.failure(&name.to_owned())
    }

    pub(super) fn any(&self) -> bool {
        !self.troubles.is_empty()
    }

    /// Reports the failures that are not reported yet. Returns whether there were any.
    pub(super) fn tell<M, P>(&self, into: &mut Deliveries<M, P>) -> bool {
        self.parts.report(into)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const PART: &str = "orders/1";

    #[test]
    fn what_fails_in_two_ways_is_well_when_both_are_over() {
        let mut failures = Failures::default();
        failures.fail(PART, Trouble::Unread, "no codec".to_owned());
        failures.fail(PART, Trouble::NoLeader, "no leader".to_owned());
        failures.recover(PART, Trouble::NoLeader);
        assert_eq!(failures.of(PART).unwrap().why, "no leader");
        failures.recover(PART, Trouble::Unread);
        assert!(failures.of(PART).is_none() && !failures.any());
    }

    #[test]
    fn everything_is_told_once() {
        let mut failures = Failures::default();
        let mut into = Deliveries::<(), ()>::new(1, Instant::now());
        failures.recover(PART, Trouble::Unread);
        assert!(!failures.tell(&mut into));
        failures.fail(PART, Trouble::NoLeader, "no leader".to_owned());
        assert!(failures.tell(&mut into) && !failures.tell(&mut into));
        failures.recover(PART, Trouble::Silent);
        assert!(failures.tell(&mut into) && !failures.tell(&mut into));
    }
}
