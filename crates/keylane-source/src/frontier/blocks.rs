//! The delivered offsets, and which of them are open, in blocks of 64 offsets.

use std::collections::VecDeque;
use std::ops::Range;

use super::index::{self, Index};

/// Capacity, in blocks, that is never given back.
const MOST_KEPT: usize = 64;

/// 64 offsets in a row of which at least one was delivered.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its offsets, divided by 64.
    number: u64,
    /// A bit for each offset that was delivered.
    delivered: u64,
    /// A bit for each one that is open: a part of those delivered.
    open: u64,
}

impl Block {
    fn settled(&self) -> u64 {
        self.delivered & !self.open
    }

    fn offset(&self, bit: u32) -> u64 {
        self.number << 6 | u64::from(bit)
    }
}

#[inline]
fn number_of(offset: u64) -> u64 {
    offset >> 6
}

#[inline]
fn bit_of(offset: u64) -> u64 {
    1 << (offset & 63)
}

/// The lowest bit of those that are set.
fn lowest(bits: u64) -> u64 {
    bits & bits.wrapping_neg()
}

/// How a position was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It was the first open one.
    First,
    /// Something below it is open.
    Later,
}

/// The blocks in which there is something open, and all blocks behind them.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Sorted. Something is open in the first of them, unless there is one only.
    blocks: VecDeque<Block>,
    /// Where they are, by their serial numbers.
    index: Index,
    /// The serial number of the first block.
    first: u32,
    /// How many positions are open.
    open: usize,
    /// How many are in these blocks, open or not.
    delivered: u64,
}

impl Blocks {
    pub(super) fn open_len(&self) -> usize {
        self.open
    }

    #[inline]
    pub(super) fn first_open(&self) -> Option<u64> {
        let block = self.blocks.front()?;
        (block.open != 0).then(|| block.offset(block.open.trailing_zeros()))
    }

    /// How many are settled above the first open position.
    pub(super) fn beyond_len(&self) -> u64 {
        let Some(front) = self.blocks.front().filter(|front| front.open != 0) else {
            return 0;
        };
        let below = front.delivered & (lowest(front.open) - 1);
        self.delivered - self.open as u64 - u64::from(below.count_ones())
    }

    /// Takes a position that is higher than all before it.
    #[inline]
    pub(super) fn push(&mut self, offset: u64, is_open: bool) {
        let number = number_of(offset);
        let bit = bit_of(offset);
        let open = if is_open { bit } else { 0 };
        self.open += usize::from(is_open);
        self.delivered += 1;
        match self.blocks.back_mut() {
            Some(back) if back.number == number => {
                back.delivered |= bit;
                back.open |= open;
            }
            _ => self.push_block(Block {
                number,
                delivered: bit,
                open,
            }),
        }
    }

    fn push_block(&mut self, block: Block) {
        self.blocks.push_back(block);
        self.drop_settled();
        if self.index.is_full() {
            let numbers = self.blocks.iter().map(|block| block.number);
            self.index = Index::new(self.first, numbers);
        } else {
            let serial = index::after(self.first, self.blocks.len() - 1);
            self.index.insert(block.number, serial);
        }
    }

    /// An open position is settled. None: it is not open.
    #[inline]
    pub(super) fn close(&mut self, offset: u64) -> Option<Closed> {
        let place = self.place_of(number_of(offset))?;
        let block = &mut self.blocks[place];
        let bit = bit_of(offset);
        if block.open & bit == 0 {
            return None;
        }
        let is_first = place == 0 && block.open & (bit - 1) == 0;
        block.open ^= bit;
        self.open -= 1;
        if !is_first {
            return Some(Closed::Later);
        }
        if block.open == 0 {
            self.drop_settled();
        }
        Some(Closed::First)
    }

    /// Whether a position was delivered and is not open any more.
    pub(super) fn is_settled(&self, offset: u64) -> bool {
        let place = self.place_of(number_of(offset));
        place.is_some_and(|place| self.blocks[place].settled() & bit_of(offset) != 0)
    }

    /// Where the block of this number is.
    #[inline]
    fn place_of(&self, number: u64) -> Option<usize> {
        let ahead = number.checked_sub(self.blocks.front()?.number)?;
        // Without wide gaps no block is missing.
        let place = ahead as usize;
        match self.blocks.get(place) {
            Some(block) if block.number == number => Some(place),
            _ => self.place_in_index(number),
        }
    }

    fn place_in_index(&self, number: u64) -> Option<usize> {
        let place = |serial| index::distance(self.first, serial);
        let is_it = |serial| {
            let block = self.blocks.get(place(serial));
            block.is_some_and(|block| block.number == number)
        };
        self.index.find(number, is_it).map(place)
    }

    /// Drops the blocks at the front in which nothing is open, but for the last one: the next
    /// positions are likely to be in it.
    fn drop_settled(&mut self) {
        while self.blocks.len() > 1
            && let Some(settled) = self.blocks.pop_front_if(|block| block.open == 0)
        {
            self.delivered -= u64::from(settled.delivered.count_ones());
            self.first = index::after(self.first, 1);
        }
        let room = self.blocks.capacity();
        if room > MOST_KEPT && self.blocks.len() < room / 8 {
            self.blocks.shrink_to(room / 2);
        }
    }

    /// The open positions, the lowest first.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flat_map(|block| {
            let mut bits = block.open;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(block.offset(bit))
            })
        })
    }

    /// What is settled above the first open position, in runs between which something is open.
    pub(super) fn settled_runs(&self) -> SettledRuns<'_> {
        let open = self.blocks.front().map_or(0, |front| front.open);
        SettledRuns {
            blocks: &self.blocks,
            // Nothing is beyond if nothing is open.
            place: if open == 0 { self.blocks.len() } else { 0 },
            rest: !(lowest(open).wrapping_sub(1)),
        }
    }
}

/// Runs of settled positions. Each goes from a position to the last one before the next that is
/// open, and over the gaps between them.
#[derive(Debug)]
pub(super) struct SettledRuns<'a> {
    blocks: &'a VecDeque<Block>,
    /// The block to go on with.
    place: usize,
    /// The bits in it that are still to be looked at.
    rest: u64,
}

impl SettledRuns<'_> {
    fn next_block(&mut self) {
        self.place += 1;
        self.rest = u64::MAX;
    }
}

impl Iterator for SettledRuns<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let start = loop {
            let block = self.blocks.get(self.place)?;
            let settled = block.settled() & self.rest;
            if settled != 0 {
                self.rest &= !(lowest(settled) - 1);
                break block.offset(settled.trailing_zeros());
            }
            self.next_block();
        };
        let mut end = start + 1;
        while let Some(block) = self.blocks.get(self.place) {
            let open = block.open & self.rest;
            // All of them, if nothing is open.
            let before_open = lowest(open).wrapping_sub(1);
            let settled = block.settled() & self.rest & before_open;
            if settled != 0 {
                end = block.offset(settled.ilog2()) + 1;
            }
            if open != 0 {
                self.rest &= !before_open;
                break;
            }
            self.next_block();
        }
        Some(start..end)
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    impl Blocks {
        /// Bytes on the heap.
        fn memory(&self) -> usize {
            self.blocks.capacity() * size_of::<Block>() + self.index.memory()
        }
    }

    /// Positions that are so far apart, all open.
    fn open(count: u64, step: u64) -> Blocks {
        let mut blocks = Blocks::default();
        (0..count).for_each(|n| blocks.push(n * step, true));
        blocks
    }

    /// As the page of the module says it. The memory of a few is rounded up.
    #[test]
    fn memory_is_for_positions_and_not_for_gaps() {
        const ROUNDED_UP: usize = 300;
        for count in [1, 2, 10, 1_000, 5_000, 20_000, 70_000] {
            let sparse = open(count, 1_000_003);
            let most = 80 * count as usize + ROUNDED_UP;
            assert!(sparse.memory() <= most, "{count}: {}", sparse.memory());
            let dense = open(count, 1);
            let most = count as usize * 80 / 64 + ROUNDED_UP;
            assert!(dense.memory() <= most, "{count}: {}", dense.memory());
        }
    }

    #[test]
    fn what_a_burst_has_taken_is_given_back() {
        let mut blocks = open(100_000, 64);
        let most = blocks.memory();
        for n in 0..100_000 {
            assert_eq!(blocks.close(n * 64), Some(Closed::First));
        }
        assert_eq!(blocks.blocks.len(), 1, "the last block stays");
        assert!(blocks.blocks.capacity() <= MOST_KEPT);
        // The index is made anew as blocks come and go, however many have.
        for n in 100_000..500_000 {
            blocks.push(n * 64, true);
            assert_eq!(blocks.close(n * 64), Some(Closed::First));
        }
        assert!(blocks.memory() < most / 100, "{}", blocks.memory());
    }

    /// Serial numbers start again from 0 after 2^31 blocks.
    #[test]
    fn serial_numbers_come_around() {
        let mut blocks = Blocks {
            first: index::after(0, (1 << 31) - 1_000),
            ..Blocks::default()
        };
        for n in 0..3_000 {
            blocks.push(n * 1_000, true);
        }
        for n in (0..3_000).rev() {
            let is_first = n == 0;
            let closed = if is_first {
                Closed::First
            } else {
                Closed::Later
            };
            assert_eq!(blocks.close(n * 1_000 + 1), None);
            assert_eq!(blocks.close(n * 1_000), Some(closed));
        }
        assert_eq!((blocks.open_len(), blocks.first), (0, 1_999));
    }

    #[test]
    fn runs_go_over_gaps_and_stop_at_what_is_open() {
        let mut blocks = Blocks::default();
        // 0 stays open: nothing is beyond without it.
        let positions = [
            (0, true),
            (2, false),
            (5, false),
            (63, true),
            (64, false),
            (127, false),
            // A block in between has nothing.
            (200, false),
            (1_000, true),
            (1_001, false),
            (5_000, true),
            (5_001, true),
            (6_000, false),
        ];
        for (offset, is_open) in positions {
            blocks.push(offset, is_open);
        }
        let runs: Vec<_> = blocks.settled_runs().collect();
        assert_eq!(runs, [2..6, 64..201, 1_001..1_002, 6_000..6_001]);
        assert_eq!(blocks.beyond_len(), 7);
        assert!(blocks.open().eq([0, 63, 1_000, 5_000, 5_001]));
        assert_eq!(blocks.close(0), Some(Closed::First));
        let runs: Vec<_> = blocks.settled_runs().collect();
        assert_eq!(runs, [64..201, 1_001..1_002, 6_000..6_001]);
        assert_eq!(blocks.beyond_len(), 5, "2 and 5 are below");
    }
}
