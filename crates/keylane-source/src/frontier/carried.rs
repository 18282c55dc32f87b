//! Offsets that an earlier generation has settled, and the log has not delivered again yet.

use std::collections::VecDeque;
use std::ops::Range;

use super::beyond::Beyond;

#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    /// Sorted; no two touch, none is empty.
    runs: VecDeque<Range<u64>>,
    /// How many offsets are in them.
    len: u64,
}

impl Carried {
    /// What is not below `end`.
    pub(super) fn new(beyond: Beyond, end: u64) -> Self {
        let mut carried = Self {
            len: beyond.runs().map(|run| run.end - run.start).sum(),
            runs: beyond.into_runs().into(),
        };
        carried.pass(end);
        carried
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(super) fn contains(&self, offset: u64) -> bool {
        let place = self.runs.partition_point(|run| run.end <= offset);
        self.runs.get(place).is_some_and(|run| run.start <= offset)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().cloned()
    }

    /// The run that starts at this offset, below which there is none any more.
    #[inline]
    pub(super) fn run_at(&self, end: u64) -> Option<Range<u64>> {
        let first = self.runs.front()?;
        (first.start == end).then(|| first.clone())
    }

    /// Everything below `end` was delivered, or never will be.
    #[inline]
    pub(super) fn pass(&mut self, end: u64) {
        while let Some(first) = self.runs.front_mut() {
            if first.end > end {
                let passed = end.saturating_sub(first.start);
                first.start += passed;
                self.len -= passed;
                return;
            }
            self.len -= first.end - first.start;
            self.runs.pop_front();
        }
        // Its memory is not needed again.
        self.runs = VecDeque::new();
    }
}
