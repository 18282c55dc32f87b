//! The messages that may be delivered, in the order in which they were accepted.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use super::entry::Entry;

/// Sorted by sequence. A taken message leaves it, and a failed one comes back to its place.
#[derive(Debug, Default)]
pub(crate) struct Line {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Returns the entries behind this sequence.
    pub(crate) fn after(&mut self, sequence: u64) -> impl Iterator<Item = &mut Entry> {
        let from = self.place(sequence + 1);
        self.entries.range_mut(from..)
    }

    /// Returns how many entries are behind this sequence.
    pub(crate) fn count_after(&self, sequence: u64) -> usize {
        self.len() - self.place(sequence + 1)
    }

    /// Inserts an entry by its sequence: in constant time at either end.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.bytes += entry.size;
        let at = match self.entries.back() {
            Some(last) if last.sequence() > entry.sequence() => self.place(entry.sequence()),
            _ => self.len(),
        };
        self.entries.insert(at, entry);
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.size;
        Some(entry)
    }

    /// Takes the entries at these places, which ascend.
    pub(crate) fn take(&mut self, places: &[usize]) -> Vec<Entry> {
        let Some(&last) = places.last() else {
            return Vec::new();
        };
        let mut taken = Vec::with_capacity(places.len());
        let mut passed = Vec::with_capacity(last + 1 - places.len());
        let mut next = places.iter().peekable();
        for (n, entry) in self.entries.drain(..=last).enumerate() {
            if next.next_if(|place| **place == n).is_some() {
                self.bytes -= entry.size;
                taken.push(entry);
            } else {
                passed.push(entry);
            }
        }
        for entry in passed.into_iter().rev() {
            self.entries.push_front(entry);
        }
        taken
    }

    /// Takes all entries of these keys. Looks at every entry.
    pub(crate) fn take_keys(&mut self, keys: &HashSet<Bytes>) -> Vec<Entry> {
        let places: Vec<usize> = (0..self.len())
            .filter(|n| keys.contains(self.entries[*n].key()))
            .collect();
        self.take(&places)
    }

    /// Inserts sorted entries. Looks at every entry.
    pub(crate) fn put_all(&mut self, entries: VecDeque<Entry>) {
        if entries.is_empty() {
            return;
        }
        self.bytes += entries.iter().map(|entry| entry.size).sum::<usize>();
        self.entries.extend(entries);
        // Two sorted runs, which this merges.
        let all = self.entries.make_contiguous();
        all.sort_by_key(Entry::sequence);
    }

    fn place(&self, sequence: u64) -> usize {
        self.entries
            .partition_point(|entry| entry.sequence() < sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::core::support::entry;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64),
        Take(Vec<prop::sample::Index>),
        TakeKey(u8),
        /// Takes all entries of a key, and puts them back.
        TurnKey(u8),
        Pop,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..200).prop_map(Step::Put),
            2 => proptest::collection::vec(any::<prop::sample::Index>(), 0..6).prop_map(Step::Take),
            1 => (0_u8..3).prop_map(Step::TakeKey),
            1 => (0_u8..3).prop_map(Step::TurnKey),
            1 => Just(Step::Pop),
        ]
    }

    fn only(key: u8) -> HashSet<Bytes> {
        HashSet::from([Bytes::copy_from_slice(&[key])])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        /// Against a map, which is sorted by itself.
        #[test]
        fn a_line_is_a_sorted_map(steps in proptest::collection::vec(any_step(), 0..60)) {
            let mut line = Line::default();
            let mut model: BTreeMap<u64, usize> = BTreeMap::new();
            let key_of = |sequence: u64| (sequence % 3) as u8;
            for step in steps {
                let (taken, expected): (Vec<u64>, Vec<u64>) = match step {
                    Step::Put(sequence) if model.contains_key(&sequence) => continue,
                    Step::Put(sequence) => {
                        let entry = entry(sequence, &[key_of(sequence)], sequence as usize);
                        model.insert(sequence, entry.size);
                        line.put(entry);
                        continue;
                    }
                    Step::Take(_) if model.is_empty() => continue,
                    Step::Take(places) => {
                        let places = places.iter().map(|n| n.index(model.len()));
                        let mut places: Vec<_> = places.collect();
                        places.sort_unstable();
                        places.dedup();
                        let expected = places.iter().map(|n| *model.keys().nth(*n).unwrap());
                        let expected = expected.collect();
                        (line.take(&places).iter().map(Entry::sequence).collect(), expected)
                    }
                    Step::TakeKey(key) => {
                        let taken = line.take_keys(&only(key));
                        let expected = model.keys().copied().filter(|s| key_of(*s) == key);
                        let expected = expected.collect();
                        (taken.iter().map(Entry::sequence).collect(), expected)
                    }
                    Step::TurnKey(key) => {
                        let taken = line.take_keys(&only(key));
                        line.put_all(taken.into());
                        continue;
                    }
                    Step::Pop => (
                        line.pop().iter().map(Entry::sequence).collect(),
                        model.keys().take(1).copied().collect(),
                    ),
                };
                prop_assert_eq!(&taken, &expected);
                model.retain(|sequence, _| !expected.contains(sequence));
                let left: Vec<u64> = line.iter().map(Entry::sequence).collect();
                prop_assert_eq!(left, model.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(line.bytes(), model.values().sum::<usize>());
                prop_assert_eq!(line.count_after(100), model.range(101..).count());
                prop_assert_eq!(line.after(100).count(), model.range(101..).count());
            }
        }
    }
}
