//! The sequences of one key that wait in the store, in order. Pure.

use std::collections::{BTreeSet, VecDeque};

/// The sequences of one key whose messages are not handed over.
///
/// Messages without versions come with growing sequences: each is stored as the distance to the
/// previous one, in as few bytes as it needs. Messages with versions go in the order of their
/// versions.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Messages that came back, or have a version: the lowest version first, then the lowest
    /// sequence.
    sorted: BTreeSet<(u64, u64)>,
    /// Distances, seven bits in a byte, the lowest first; the last byte of each is below 128.
    distances: VecDeque<u8>,
    len: usize,
    /// The sequence before the first distance, and the last one that was pushed.
    before_first: u64,
    last: u64,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.len + self.sorted.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Remembers a message that was read in its turn: its sequence is above all earlier ones.
    pub(crate) fn push(&mut self, sequence: u64, version: Option<u64>) {
        if let Some(version) = version {
            self.sorted.insert((version, sequence));
            return;
        }
        if self.len == 0 {
            self.before_first = 0;
            self.last = 0;
        }
        debug_assert!(sequence > self.last, "it was read in its turn");
        let mut distance = sequence - self.last;
        while distance >= 128 {
            self.distances.push_back(distance as u8 | 128);
            distance >>= 7;
        }
        self.distances.push_back(distance as u8);
        self.last = sequence;
        self.len += 1;
    }

    /// Remembers a message that was handed over and came back, or waits again.
    pub(crate) fn put_back(&mut self, sequence: u64, version: Option<u64>) {
        self.sorted.insert((version.unwrap_or(0), sequence));
    }

    /// Removes and returns the next message.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let first = self.first_distance();
        let sorted = self.sorted.first().copied();
        let takes_sorted = match (sorted, first) {
            (None, None) => return None,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // Without versions the lower sequence goes first.
            (Some((version, sequence)), Some((first, _))) => version > 0 || sequence < first,
        };
        if takes_sorted {
            return self.sorted.pop_first().map(|(_, sequence)| sequence);
        }
        let (sequence, bytes) = first?;
        self.distances.drain(..bytes);
        self.before_first = sequence;
        self.len -= 1;
        Some(sequence)
    }

    /// Returns the first sequence that is stored as a distance, and the bytes that it takes.
    fn first_distance(&self) -> Option<(u64, usize)> {
        let mut distance = 0;
        for (at, byte) in self.distances.iter().enumerate() {
            distance |= u64::from(byte & 127) << (7 * at);
            if byte & 128 == 0 {
                return Some((self.before_first + distance, at + 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_came_back_goes_first() {
        let mut backlog = Backlog::default();
        for sequence in [3, 10, 1_000_000, 1_000_001] {
            backlog.push(sequence, None);
        }
        assert_eq!(backlog.pop(), Some(3));
        backlog.put_back(3, None);
        backlog.put_back(2, None);
        let all: Vec<u64> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(all, [2, 3, 10, 1_000_000, 1_000_001]);
        assert!(backlog.is_empty());
        backlog.push(7, None);
        assert_eq!(backlog.pop(), Some(7));
    }

    #[test]
    fn versions_go_in_their_own_order() {
        let mut backlog = Backlog::default();
        for (sequence, version) in [(1, 9), (2, 4), (3, 5)] {
            backlog.push(sequence, Some(version));
        }
        backlog.put_back(8, Some(1));
        let all: Vec<u64> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(all, [8, 2, 3, 1]);
    }

    #[test]
    fn a_million_alternating_sequences_take_two_bytes_each() {
        let mut backlog = Backlog::default();
        for n in 1..=1_000_000_u64 {
            backlog.push(n * 10_000, None);
        }
        assert!(
            backlog.distances.len() <= 2_000_001,
            "{}",
            backlog.distances.len()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn it_is_a_sorted_set(
            steps in prop::collection::vec((0_u8..4, 1_u64..100_000), 1..200)
        ) {
            let (mut backlog, mut model) = (Backlog::default(), BTreeSet::new());
            let mut next = 1_000_000;
            for (step, number) in steps {
                match step {
                    0 | 1 => {
                        next += number;
                        backlog.push(next, None);
                        model.insert(next);
                    }
                    2 => {
                        let at = number;
                        if model.insert(at) {
                            backlog.put_back(at, None);
                        }
                    }
                    _ => prop_assert_eq!(backlog.pop(), model.pop_first()),
                }
                prop_assert_eq!(backlog.len(), model.len());
            }
        }
    }
}
