//! A queue that grows in chunks.

use std::collections::VecDeque;

/// Most items in one chunk. A push or pop under the shard lock never moves more than this many.
const CHUNK: usize = 64;

/// Most emptied chunks that a deque keeps: as many as one batch from the channel can fill.
const SPARE_CHUNKS: usize = 4;

/// A first-in, first-out queue that grows in chunks.
///
/// A plain `VecDeque` doubles: a hot lane of a million messages would copy them all while holding
/// its shard's lock, and keep up to twice the memory it needs.
#[derive(Debug)]
pub(super) struct Deque<T> {
    first: VecDeque<T>,
    /// Chunks behind the first. All but the last hold exactly `CHUNK` items.
    more: VecDeque<VecDeque<T>>,
    /// Emptied chunks, for the next ones that are needed.
    spare: Vec<VecDeque<T>>,
}

impl<T> Deque<T> {
    pub(super) fn new() -> Self {
        Self {
            first: VecDeque::new(),
            more: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        let behind = self
            .more
            .back()
            .map_or(0, |last| (self.more.len() - 1) * CHUNK + last.len());
        self.first.len() + behind
    }

    /// What it takes on the heap, once it is empty.
    pub(super) fn bytes(&self) -> usize {
        let spare: usize = self.spare.iter().map(VecDeque::capacity).sum();
        let slots = self.first.capacity() + spare;
        let chunks = self.more.capacity() * size_of::<VecDeque<T>>();
        chunks + slots * size_of::<T>()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // The first chunk is refilled whenever it runs out, so it alone decides.
        self.first.is_empty()
    }

    #[inline]
    pub(super) fn push_back(&mut self, item: T) {
        if self.more.is_empty() && self.first.len() < CHUNK {
            return push(&mut self.first, item);
        }
        match self.more.back_mut() {
            Some(last) if last.len() < CHUNK => push(last, item),
            _ => {
                // At its full size at once: behind a full chunk there is more to come.
                let chunk = self.spare.pop();
                let mut chunk = chunk.unwrap_or_else(|| VecDeque::with_capacity(CHUNK));
                push(&mut chunk, item);
                self.more.push_back(chunk);
            }
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        if self.first.len() == 1 && !self.more.is_empty() {
            return self.pop_last_of_first();
        }
        self.first.pop_front()
    }

    /// Takes the newest item out.
    pub(super) fn pop_back(&mut self) -> Option<T> {
        let Some(last) = self.more.back_mut() else {
            return self.first.pop_back();
        };
        let item = last.pop_back();
        if last.is_empty() {
            self.more.pop_back();
        }
        item
    }

    /// The first chunk runs out: the next one takes its place.
    // Once in a chunk, and not in the way of the others.
    #[inline(never)]
    fn pop_last_of_first(&mut self) -> Option<T> {
        let item = self.first.pop_front();
        if let Some(next) = self.more.pop_front() {
            let emptied = std::mem::replace(&mut self.first, next);
            if self.spare.len() < SPARE_CHUNKS {
                self.spare.push(emptied);
            }
            if self.more.is_empty() && self.more.capacity() > 4 * SPARE_CHUNKS {
                // Its size was that of a long backlog, which is over.
                self.more = VecDeque::new();
            }
        }
        item
    }

    /// Puts an item before all others. The first chunk may exceed its size for that.
    pub(super) fn push_front(&mut self, item: T) {
        self.first.push_front(item);
    }

    /// Drops most of the emptied chunks: what comes next may be few.
    pub(super) fn shrink(&mut self) {
        self.spare.truncate(1);
    }

    /// Keeps the items for which `keep` returns `true`, in their order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for _ in 0..self.len() {
            if let Some(item) = self.pop_front()
                && keep(&item)
            {
                self.push_back(item);
            }
        }
    }

    /// Takes out the items that are chosen, in their order.
    pub(super) fn extract(&mut self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        if self.iter().any(&mut chosen) {
            for _ in 0..self.len() {
                match self.pop_front() {
                    Some(item) if chosen(&item) => out.push(item),
                    Some(item) => self.push_back(item),
                    None => break,
                }
            }
        }
        out
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.first.iter_mut().chain(self.more.iter_mut().flatten())
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.more.back().unwrap_or(&self.first).back()
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.first.front()
    }
}

/// Grows by half and not by double: most lanes are short, and a slot is the size of a message.
fn push<T>(chunk: &mut VecDeque<T>, item: T) {
    if chunk.len() == chunk.capacity() {
        let most = CHUNK - chunk.len();
        chunk.reserve_exact((chunk.len() / 2).clamp(1, most));
    }
    chunk.push_back(item);
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_across_chunks_and_counts() {
        let mut deque = Deque::new();
        let (mut next_in, mut next_out) = (0_u32, 0_u32);
        for round in 0..40_u32 {
            for _ in 0..round * 7 {
                deque.push_back(next_in);
                next_in += 1;
            }
            for _ in 0..round * 6 {
                assert_eq!(deque.pop_front(), Some(next_out));
                next_out += 1;
            }
            assert_eq!(deque.len() as u32, next_in - next_out);
            assert_eq!(deque.is_empty(), next_in == next_out);
            assert_eq!(deque.iter_mut().count() as u32, next_in - next_out);
        }
        while let Some(item) = deque.pop_front() {
            assert_eq!(item, next_out);
            next_out += 1;
        }
        assert_eq!(next_in, next_out);
        assert!(deque.more.capacity() <= 4 * SPARE_CHUNKS);
    }

    fn holding(items: u32) -> Deque<u32> {
        let mut deque = Deque::new();
        (0..items).for_each(|item| deque.push_back(item));
        deque
    }

    #[test]
    fn what_is_put_in_front_comes_out_first() {
        let mut deque = holding(200);
        deque.push_front(1_000);
        assert_eq!((deque.front(), deque.len()), (Some(&1_000), 201));
        let expected: Vec<_> = std::iter::once(1_000).chain(0..200).collect();
        assert_eq!(deque.iter().copied().collect::<Vec<_>>(), expected);
        deque.iter_mut().rev().for_each(|item| *item += 1);
        let items = std::iter::from_fn(|| deque.pop_front());
        assert!(items.eq(expected.iter().map(|item| item + 1)));
    }

    #[test]
    fn what_is_kept_stays_in_its_order() {
        let mut deque = holding(200);
        deque.retain(|item| item % 3 == 0);
        assert_eq!(deque.len(), 67);
        let items = std::iter::from_fn(|| deque.pop_front());
        assert!(items.eq((0..200).step_by(3)));
        assert!(deque.is_empty() && deque.front().is_none());
    }

    #[test]
    fn what_is_chosen_comes_out_and_the_others_stay_in_their_order() {
        let mut deque = holding(200);
        assert_eq!(deque.extract(|item| *item == 200), [0_u32; 0]);
        assert_eq!(deque.len(), 200);
        let thirds: Vec<_> = (0..200).filter(|item| item % 3 == 0).collect();
        assert_eq!(deque.extract(|item| item % 3 == 0), thirds);
        let items = std::iter::from_fn(|| deque.pop_front());
        assert!(items.eq((0..200).filter(|item| item % 3 != 0)));
    }

    #[test]
    fn a_deque_that_is_shrunk_keeps_two_chunks() {
        let mut deque = holding(4 * CHUNK as u32);
        while deque.pop_front().is_some() {}
        assert_eq!(deque.spare.len(), 3);
        let heap = |chunks: usize| {
            // Four bytes an item, and what holds the chunks.
            chunks * CHUNK * 4 + 4 * size_of::<VecDeque<u32>>()
        };
        assert_eq!(deque.bytes(), heap(4));
        deque.shrink();
        assert_eq!((deque.spare.len(), deque.bytes()), (1, heap(2)));
    }

    #[test]
    fn the_first_chunk_grows_by_half_and_the_others_are_whole() {
        let mut deque = Deque::new();
        let mut room = Vec::new();
        for item in 0..CHUNK {
            deque.push_back(item);
            room.push(deque.first.capacity());
        }
        room.dedup();
        assert_eq!(room, [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 64]);
        assert!(deque.more.is_empty());
        deque.push_back(CHUNK);
        assert_eq!((deque.more.len(), deque.more[0].capacity()), (1, CHUNK));
        assert_eq!(deque.len(), CHUNK + 1);
        // Behind a chunk that is not full any more, too: the order is kept.
        assert_eq!(deque.pop_front(), Some(0));
        deque.push_back(CHUNK + 1);
        assert_eq!((deque.first.len(), deque.more[0].len()), (CHUNK - 1, 2));
    }

    #[test]
    fn a_few_emptied_chunks_are_used_again() {
        let mut deque = holding(10 * CHUNK as u32);
        let left = deque.more.capacity();
        assert_eq!((deque.more.len(), deque.spare.len()), (9, 0));
        while deque.pop_front().is_some() {}
        assert_eq!((deque.more.len(), deque.spare.len()), (0, SPARE_CHUNKS));
        assert_eq!(deque.more.capacity(), left, "it was not long");
        (0..2 * CHUNK as u32 + 1).for_each(|item| deque.push_back(item));
        assert_eq!((deque.more.len(), deque.spare.len()), (2, SPARE_CHUNKS - 2));

        let mut long = holding(40 * CHUNK as u32);
        while long.more.len() > 1 {
            assert!(long.pop_front().is_some());
        }
        assert!(long.more.capacity() > 4 * SPARE_CHUNKS);
        while long.pop_front().is_some() {}
        assert_eq!(long.more.capacity(), 0);
    }

    #[test]
    fn a_long_deque_wastes_less_than_a_chunk() {
        let mut deque = Deque::new();
        for item in 0..100_000_u64 {
            deque.push_back(item);
        }
        let slots =
            deque.first.capacity() + deque.more.iter().map(VecDeque::capacity).sum::<usize>();
        assert!(slots < 100_000 * 115 / 100, "{slots} slots");
    }
}
