//! Settled offsets beyond a position, as they are handed over.

use std::ops::Range;

use super::encoding;
use super::error::DecodeError;
use super::limits::HIGHEST;
use super::runs::joined;

/// Settled offsets with which a frontier begins, when it goes on where another one has ended.
///
/// It comes from [`decode`](Self::decode), or is collected from ranges of offsets, which may come
/// in any order and overlap. Offsets that are not below
/// [`Frontier::HIGHEST`](super::Frontier::HIGHEST) are left out.
///
/// # Examples
///
/// ```
/// use keylane::source::frontier::Beyond;
///
/// let beyond: Beyond = [7..9, 20..21, 8..12].into_iter().collect();
/// assert!(beyond.contains(11) && !beyond.contains(12));
/// assert!(beyond.runs().eq([7..12, 20..21]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Sorted; no two touch, none is empty.
    runs: Vec<Range<u64>>,
}

impl Beyond {
    /// Reads the bytes that [`Frontier::encode`](super::Frontier::encode) has written. No bytes at
    /// all mean that nothing is beyond.
    ///
    /// It needs at most 64 times the memory of the bytes, whatever they are.
    ///
    /// # Errors
    ///
    /// If the bytes are of an unknown version, or cut off, or changed. A change of a single byte is
    /// always found. Of other changes, and of cut ends, one in about 4 billion goes unnoticed.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        encoding::decode(bytes).map(|runs| Self { runs })
    }

    /// Returns the offsets, in sorted ranges that do not touch.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().cloned()
    }

    /// Returns whether this offset is one of them.
    pub fn contains(&self, offset: u64) -> bool {
        let place = self.runs.partition_point(|run| run.end <= offset);
        self.runs.get(place).is_some_and(|run| run.start <= offset)
    }

    /// Returns whether there are no offsets.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn into_runs(self) -> Vec<Range<u64>> {
        self.runs
    }
}

impl FromIterator<Range<u64>> for Beyond {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let ranges = ranges
            .into_iter()
            .map(|run| run.start..run.end.min(HIGHEST));
        Self {
            runs: joined(ranges).collect(),
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
#[expect(clippy::single_range_in_vec_init, reason = "lists of runs")]
mod tests {
    use super::*;

    type Ranges<'a> = &'a [Range<u64>];

    #[test]
    fn ranges_are_sorted_and_joined() {
        let cases: [(Ranges<'_>, Ranges<'_>); 6] = [
            (
                &[HIGHEST - 1..HIGHEST + 5, HIGHEST..u64::MAX],
                &[HIGHEST - 1..HIGHEST],
            ),
            (&[], &[]),
            (&[5..5], &[]),
            (&[3..5, 0..2], &[0..2, 3..5]),
            (&[3..5, 5..6, 0..3], &[0..6]),
            (
                &[0..10, 2..3, 10..10, 8..11, 20..u64::MAX],
                &[0..11, 20..HIGHEST],
            ),
        ];
        for (ranges, runs) in cases {
            let beyond: Beyond = ranges.iter().cloned().collect();
            assert_eq!(beyond.runs, runs);
            assert_eq!(beyond.is_empty(), runs.is_empty());
            for offset in 0..25 {
                let is_in = ranges.iter().any(|range| range.contains(&offset));
                assert_eq!(beyond.contains(offset), is_in, "{offset} in {ranges:?}");
            }
        }
    }
}
