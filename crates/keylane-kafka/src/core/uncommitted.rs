//! Settled records that the broker does not know yet: how many, and since when. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The limits of settled records that no commit contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitLimits {
    pub(crate) records: u64,
    /// How long after its settlement a record may wait for its commit.
    pub(crate) time: Duration,
}

/// Settled records that the broker does not know yet. They are handled again if this process dies.
///
/// A commit may take long although the broker is well: it shares a connection with the request to
/// join the group, and the broker answers that one only when all members have joined, or when the
/// session of a dead one has ended.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted {
    /// When the first of them settled, or earlier.
    since: Option<Instant>,
    /// The commit in progress: when it began, and how many records it contains.
    sent: Option<(Instant, u64)>,
}

impl Uncommitted {
    /// Records settle. So many others were in no commit before.
    pub(crate) fn settle(&mut self, others: u64, now: Instant) {
        if self.count(others) == 0 {
            self.since = None;
        }
        self.since.get_or_insert(now);
    }

    /// A commit with so many records begins.
    pub(crate) fn send(&mut self, records: u64, now: Instant) {
        self.sent = Some((now, records));
    }

    /// The commit has ended.
    pub(crate) fn answer(&mut self, is_taken: bool) {
        if let Some((began, _)) = self.sent.take()
            && is_taken
        {
            // What has settled since is in the next one.
            self.since = Some(began);
        }
    }

    /// Whether to hand over no more records until a commit is taken. So many records are in no
    /// commit.
    pub(crate) fn is_full(&self, in_none: u64, limits: CommitLimits, now: Instant) -> bool {
        let count = self.count(in_none);
        let waits = self.since.map(|since| now.saturating_duration_since(since));
        count >= limits.records || count > 0 && waits.is_some_and(|waits| waits >= limits.time)
    }

    fn count(&self, in_none: u64) -> u64 {
        in_none + self.sent.map_or(0, |(_, records)| records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CommitLimits = CommitLimits {
        records: 10,
        time: Duration::from_millis(300),
    };

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn records_in_a_commit_count_until_it_is_taken() {
        let (mut all, now) = (Uncommitted::default(), Instant::now());
        all.settle(0, now);
        assert!(!all.is_full(9, LIMITS, now));
        assert!(all.is_full(10, LIMITS, now));
        all.send(9, now);
        assert!(!all.is_full(0, LIMITS, now) && all.is_full(1, LIMITS, now));
        all.answer(true);
        assert!(!all.is_full(1, LIMITS, now));
    }

    #[test]
    fn the_time_of_the_first_one_counts_also_after_a_commit_that_failed() {
        let (mut all, start) = (Uncommitted::default(), Instant::now());
        all.settle(0, start);
        all.settle(1, at(start, 200));
        all.send(2, at(start, 200));
        assert!(!all.is_full(0, LIMITS, at(start, 299)));
        assert!(all.is_full(0, LIMITS, at(start, 300)));
        all.answer(false);
        assert!(all.is_full(2, LIMITS, at(start, 300)));
    }

    #[test]
    fn a_commit_leaves_the_time_of_what_settled_since() {
        let (mut all, start) = (Uncommitted::default(), Instant::now());
        all.settle(0, start);
        all.send(1, at(start, 100));
        all.settle(0, at(start, 150));
        all.answer(true);
        assert!(!all.is_full(1, LIMITS, at(start, 399)));
        assert!(all.is_full(1, LIMITS, at(start, 400)));
        // None is left, or it is gone with its partition.
        assert!(!all.is_full(0, LIMITS, at(start, 1_000)));
        all.settle(0, at(start, 1_000));
        assert!(!all.is_full(1, LIMITS, at(start, 1_299)));
    }
}
