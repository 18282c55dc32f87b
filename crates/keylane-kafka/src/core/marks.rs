//! Which letters of a partition are done. Pure.

use std::ops::Range;

use keylane_source::frontier::Beyond;

use super::start::Committed;
use crate::metadata::encode;

/// The most bytes of a run in metadata, and those that no run needs.
const OF_A_RUN: usize = 8;
const OF_NO_RUN: usize = 1;

/// The farthest end of a run that has so few bytes.
const FAR: u64 = i32::MAX as u64;

/// The offsets of a partition that are done: as a commit has them, and as the next one will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// All offsets below this one are done or gone. It is not done itself.
    from: u64,
    /// The done ones above it.
    beyond: Beyond,
}

impl Marks {
    /// Returns what is done of a log that begins there.
    pub(crate) fn new(committed: Committed, log_start: u64) -> Self {
        match committed {
            Committed::At(at, beyond) => Self::of(at.max(log_start), beyond.runs()),
            Committed::Nothing | Committed::Unknown => Self::of(log_start, [].into_iter()),
        }
    }

    /// The runs are sorted and do not touch.
    fn of(mut from: u64, runs: impl Iterator<Item = Range<u64>>) -> Self {
        let mut beyond = Vec::new();
        for run in runs {
            match run.start <= from {
                true => from = from.max(run.end),
                false => beyond.push(run),
            }
        }
        let beyond = beyond.into_iter().collect();
        Self { from, beyond }
    }

    /// Returns the first offset that is not done.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    pub(crate) fn is_done(&self, offset: u64) -> bool {
        offset < self.from || self.beyond.contains(offset)
    }

    /// Returns the first offset that is not done, of those from this one on.
    pub(crate) fn next_open(&self, offset: u64) -> u64 {
        let offset = offset.max(self.from);
        if !self.beyond.contains(offset) {
            return offset;
        }
        let run = self.beyond.runs().find(|run| offset < run.end);
        run.map_or(offset, |run| run.end)
    }

    /// Marks these as done, too.
    #[must_use]
    pub(crate) fn with(&self, offsets: impl IntoIterator<Item = u64>) -> Self {
        let offsets = offsets.into_iter().map(|offset| offset..offset + 1);
        let all: Beyond = self.beyond.runs().chain(offsets).collect();
        Self::of(self.from, all.runs())
    }

    /// The log has no record that is not done below this offset.
    #[must_use]
    pub(crate) fn passed(&self, offset: u64) -> Self {
        Self::of(self.from.max(offset), self.beyond.runs())
    }

    /// Returns the metadata of their commit. `None`: they do not fit.
    pub(crate) fn metadata(&self, most_chars: usize) -> Option<String> {
        let encoded = encode(self.from, || self.beyond.runs(), most_chars);
        encoded.left_out.is_none().then_some(encoded.text)
    }

    /// Whether they fit. Encodes them only if they may not.
    pub(crate) fn fit(&self, most_chars: usize) -> bool {
        let (mut count, mut end) = (0, self.from);
        for run in self.beyond.runs() {
            (count, end) = (count + 1, run.end);
        }
        // Base64 has 4 characters for 3 bytes.
        let bytes = count * OF_A_RUN + OF_NO_RUN;
        let chars = bytes.div_ceil(3) * 4;
        chars <= most_chars && end - self.from <= FAR || self.metadata(most_chars).is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metadata::{MOST_CHARS, decode};

    fn at(offset: u64, runs: &[Range<u64>]) -> Committed {
        Committed::At(offset, runs.iter().cloned().collect())
    }

    #[test]
    fn what_is_done_follows_from_the_commit_and_the_log() {
        let marks = Marks::new(at(10, &[12..14, 20..22]), 0);
        let done = |marks: &Marks| Vec::from_iter((0..24).filter(|at| !marks.is_done(*at)));
        assert_eq!(done(&marks), [10, 11, 14, 15, 16, 17, 18, 19, 22, 23]);
        for (from, next) in [(0, 10), (11, 11), (12, 14), (13, 14), (14, 14), (21, 22)] {
            assert_eq!(marks.next_open(from), next, "{from}");
        }
        assert_eq!(Marks::new(Committed::Nothing, 7).from(), 7);
        // Retention has removed the first letters.
        assert_eq!(Marks::new(at(10, &[12..14, 20..22]), 13).from(), 14);
        assert_eq!(Marks::new(at(10, &[12..14, 20..22]), 40).next_open(0), 40);
    }

    #[test]
    fn a_mark_at_the_front_passes_all_that_is_done_behind_it() {
        let marks = Marks::new(at(10, &[11..14, 30..31]), 0);
        assert_eq!(marks.with([20]).from(), 10);
        let marks = marks.with([20, 10]);
        assert_eq!(marks.from(), 14);
        assert!(marks.is_done(20) && !marks.is_done(19));
        // The log has a gap there.
        assert_eq!(marks.passed(20).from(), 21);
        assert_eq!(marks.passed(3), marks);
    }

    #[test]
    fn marks_that_do_not_fit_are_noticed() {
        let scattered = |count: u64| {
            let marks = Marks::new(Committed::Nothing, 0);
            let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
            marks.with((0..count).map(|n| mixed(n * n) + 64 * n + 1))
        };
        assert!(scattered(300).fit(MOST_CHARS));
        assert!(!scattered(30_000).fit(MOST_CHARS));
        assert_eq!(scattered(30_000).metadata(MOST_CHARS), None);
        let one = Marks::new(Committed::Nothing, 0).with([1]);
        assert!(one.fit(8) && !one.fit(7));
        // No encoding has such a number.
        let far = Marks::new(Committed::Nothing, 0).with([1 << 40]);
        assert!(!far.fit(MOST_CHARS));
    }

    proptest! {
        #[test]
        fn a_commit_has_all_marks(
            first in 0..50_u64,
            before in prop::collection::vec(0..200_u64, 0..40),
            added in prop::collection::vec(0..200_u64, 0..40),
        ) {
            let marks = Marks::new(Committed::Nothing, first).with(before.iter().copied());
            prop_assert!(marks.fit(MOST_CHARS));
            let text = marks.metadata(MOST_CHARS).unwrap();
            let read = decode(marks.from(), &text).unwrap();
            let read = Marks::new(Committed::At(marks.from(), read), 0);
            prop_assert_eq!(&read, &marks);
            let marks = read.with(added.iter().copied());
            for offset in 0..210 {
                let is_done = offset < first || before.contains(&offset) || added.contains(&offset);
                prop_assert_eq!(marks.is_done(offset), is_done, "{}", offset);
            }
        }
    }
}
