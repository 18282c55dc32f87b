//! The index of blocks, for those whose place does not follow from their number.

/// Serial numbers are counted in this many bits, so that a slot has a value that is none of them.
const SERIAL: u32 = u32::MAX >> 1;

const EMPTY: u32 = u32::MAX;

const FEWEST_SLOTS: usize = 16;

/// A hash table from the numbers of blocks to their serial numbers, with linear probing.
///
/// It holds no block numbers: the caller has them and compares. It forgets nothing by itself. The
/// serial numbers of blocks that are gone stay until more than half of the slots are used, and the
/// caller makes it anew from the blocks that there are. That leaves a quarter of the slots to fill,
/// or more, so it costs constant time for each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// As many as a power of two, or none.
    slots: Vec<u32>,
    /// How many are not empty.
    used: usize,
}

impl Index {
    /// An index for these numbers of blocks, of which the first has this serial number.
    pub(super) fn new(first: u32, numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let slots = (numbers.len() * 4).next_power_of_two().max(FEWEST_SLOTS);
        let mut index = Self {
            slots: vec![EMPTY; slots],
            used: 0,
        };
        let mut serial = first;
        for number in numbers {
            index.insert(number, serial);
            serial = after(serial, 1);
        }
        index
    }

    /// Whether it must be made anew before one more is inserted.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.slots.len() / 2
    }

    /// There must be room for it.
    pub(super) fn insert(&mut self, number: u64, serial: u32) {
        let mut slot = self.home(number);
        while self.slots[slot] != EMPTY {
            slot = self.next(slot);
        }
        self.slots[slot] = serial;
        self.used += 1;
    }

    /// The serial number of this block, or of none: `is_it` knows.
    #[inline]
    pub(super) fn find(&self, number: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(number);
        loop {
            match self.slots[slot] {
                EMPTY => return None,
                serial if is_it(serial) => return Some(serial),
                _ => slot = self.next(slot),
            }
        }
    }

    /// Where to begin to look.
    ///
    /// Both halves of a product of 128 bits are used: each of them alone puts some arithmetic
    /// progressions into the same few slots, and offsets of a log are often one.
    #[inline]
    fn home(&self, number: u64) -> usize {
        let product = u128::from(number ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        let hash = (product >> 64) as u64 ^ product as u64;
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}

/// The serial number that comes so many after another one.
pub(super) fn after(serial: u32, count: usize) -> u32 {
    serial.wrapping_add(count as u32) & SERIAL
}

/// How many serial numbers there are from one to another.
#[inline]
pub(super) fn distance(from: u32, to: u32) -> usize {
    (to.wrapping_sub(from) & SERIAL) as usize
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    impl Index {
        /// Bytes on the heap.
        pub(in super::super) fn memory(&self) -> usize {
            self.slots.capacity() * size_of::<u32>()
        }

        /// How many slots are looked at for a block that is there.
        fn steps(&self, number: u64, serial: u32) -> usize {
            let mut steps = 0;
            let found = self.find(number, |other| {
                steps += 1;
                other == serial
            });
            assert_eq!(found, Some(serial));
            steps
        }
    }

    /// A multiplication alone would put some of these into one place.
    #[test]
    fn blocks_in_any_distance_are_found_soon() {
        const BLOCKS: u64 = 10_000;
        let powers = (0..37).map(|shift| 1 << shift);
        // The last ones are half and a third of 2^64, and what 1 is if it is divided by the factor.
        let odd = [
            3,
            7,
            1_000,
            987,
            39_088_169,
            1 << 63,
            u64::MAX / 3,
            0xf1de_83e1_9937_733d,
        ];
        for step in powers.chain(odd) {
            let numbers: Vec<_> = (0..BLOCKS).map(|n| (n * 7).wrapping_mul(step)).collect();
            let distinct: std::collections::BTreeSet<_> = numbers.iter().copied().collect();
            let index = Index::new(0, distinct.iter().copied().collect::<Vec<_>>().into_iter());
            let steps = (0..)
                .zip(&distinct)
                .map(|(serial, n)| index.steps(*n, serial));
            let steps = steps.sum::<usize>();
            assert!(
                steps < distinct.len() * 2,
                "{step}: {steps} for {}",
                distinct.len()
            );
        }
    }

    #[test]
    fn an_empty_index_knows_nothing() {
        let index = Index::default();
        assert_eq!(index.find(0, |_| true), None);
        assert!(index.is_full(), "it must be made first");
        assert_eq!(index.memory(), 0);
    }

    #[test]
    fn serial_numbers_come_around() {
        assert_eq!(after(SERIAL, 1), 0);
        assert_eq!(after(SERIAL - 1, 3), 1);
        assert_eq!(distance(SERIAL - 1, 1), 3);
        assert_eq!(distance(1, SERIAL - 1), SERIAL as usize - 2);
        assert_ne!(after(SERIAL, 0), EMPTY);
    }
}
