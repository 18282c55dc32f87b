//! Failures of partitions while the others go on.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane_source::Deliveries;
use tokio::time::Instant;

use crate::control::PartitionFailure;

/// The same failure is reported once in this time at most.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The current failures, and those that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// By the names of the partitions.
    failed: BTreeMap<String, Failed>,
    news: Vec<News>,
}

#[derive(Debug)]
struct Failed {
    trouble: Trouble,
    told_at: Option<Instant>,
    seen: PartitionFailure,
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

#[derive(Debug)]
enum News {
    Failed(String, String),
    Recovered(String),
}

impl Failures {
    /// Records that a partition fails. It is tried again.
    pub(super) fn fail(&mut self, name: &str, trouble: Trouble, why: String) {
        let now = Instant::now();
        let failed = self.failed.entry(name.to_owned());
        let failed = failed.or_insert_with(|| Failed {
            trouble,
            told_at: None,
            seen: PartitionFailure {
                why: String::new(),
                since: now,
                last: now,
            },
        });
        failed.trouble = failed.trouble.max(trouble);
        let is_told = |at: Instant| now.saturating_duration_since(at) < TOLD_EVERY;
        if failed.seen.why != why || !failed.told_at.is_some_and(is_told) {
            failed.told_at = Some(now);
            self.news.push(News::Failed(name.to_owned(), why.clone()));
        }
        failed.seen.why = why;
        failed.seen.last = now;
    }

    /// Ends this trouble of a partition: it is over, or the partition is not ours any more.
    pub(super) fn recover(&mut self, name: &str, from: Trouble) {
        let has_failed = self.failed.get(name);
        if has_failed.is_some_and(|failed| failed.trouble <= from) {
            self.failed.remove(name);
            self.news.push(News::Recovered(name.to_owned()));
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<&PartitionFailure> {
        self.failed.get(name).map(|failed| &failed.seen)
    }

    pub(super) fn any(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Reports the failures that are not reported yet. Returns whether there were any.
    pub(super) fn tell<M, P>(&mut self, into: &mut Deliveries<M, P>) -> bool {
        let has_news = !self.news.is_empty();
        for news in self.news.drain(..) {
            match news {
                News::Failed(part, why) => into.part_failed(part, why),
                News::Recovered(part) => into.part_recovered(part),
            }
        }
        has_news
    }
}

#[cfg(test)]
mod tests {
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
        failures.recover(PART, Trouble::Silent);
        assert!(failures.tell(&mut into) && !failures.tell(&mut into));
    }
}
