//! The deque of parked messages of one lane.

use std::collections::VecDeque;

use keylane_rt::{Mutex, lock};

/// Most items in one chunk. A push or pop under the shard lock never moves more than this many.
const CHUNK: usize = 64;

/// Most emptied chunks that a backlog keeps: as many as one batch from the channel can fill.
const SPARE_CHUNKS: usize = 4;

/// Most bytes of emptied backlogs that are kept for reuse, over all lanes: about what the messages
/// of a full dispatcher take, if they are small and its capacity is the default.
const SPARE_BYTES: usize = 4 << 20;

/// A first-in, first-out queue that grows in chunks.
///
/// A plain `VecDeque` doubles: a hot lane of a million messages would copy them all while holding
/// its shard's lock, and keep up to twice the memory it needs.
#[derive(Debug)]
pub struct Backlog<T> {
    first: VecDeque<T>,
    /// Chunks behind the first. All but the last hold exactly `CHUNK` items.
    more: VecDeque<VecDeque<T>>,
    /// Emptied chunks, for the next ones that are needed.
    spare: Vec<VecDeque<T>>,
    /// When the timer of the first item that expires goes off, in nanoseconds since the epoch of
    /// the rules. It is here because only parked messages have such a timer.
    pub(super) expiry: Option<u64>,
}

impl<T> Backlog<T> {
    pub fn new() -> Self {
        Self {
            first: VecDeque::new(),
            more: VecDeque::new(),
            spare: Vec::new(),
            expiry: None,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        let behind = self
            .more
            .back()
            .map_or(0, |last| (self.more.len() - 1) * CHUNK + last.len());
        self.first.len() + behind
    }

    /// What it takes in memory, once it is empty.
    fn bytes(&self) -> usize {
        let spare: usize = self.spare.iter().map(VecDeque::capacity).sum();
        let slots = self.first.capacity() + spare;
        let chunks = self.more.capacity() * size_of::<VecDeque<T>>();
        size_of::<Self>() + chunks + slots * size_of::<T>()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        // The first chunk is refilled whenever it runs out, so it alone decides.
        self.first.is_empty()
    }

    #[inline]
    pub fn push_back(&mut self, item: T) {
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
    pub fn pop_front(&mut self) -> Option<T> {
        if self.first.len() == 1 && !self.more.is_empty() {
            return self.pop_last_of_first();
        }
        self.first.pop_front()
    }

    /// Takes the newest item out.
    pub fn pop_back(&mut self) -> Option<T> {
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
    pub fn push_front(&mut self, item: T) {
        self.first.push_front(item);
    }

    /// Keeps the items for which `keep` returns `true`, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for _ in 0..self.len() {
            if let Some(item) = self.pop_front()
                && keep(&item)
            {
                self.push_back(item);
            }
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.first.iter_mut().chain(self.more.iter_mut().flatten())
    }

    pub fn back(&self) -> Option<&T> {
        self.more.back().unwrap_or(&self.first).back()
    }

    pub fn front(&self) -> Option<&T> {
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

/// Emptied backlogs, so that lanes which come and go do not come and go to the allocator: also
/// where there are thousands at a time, and each holds a few messages.
///
/// Its lock is taken under a shard's lock and is the innermost one.
#[derive(Debug)]
pub struct Spares<T>(Mutex<Kept<T>>);

#[derive(Debug)]
#[allow(
    clippy::vec_box,
    reason = "boxed as lanes hold them, so that taking one is a move of a pointer"
)]
struct Kept<T> {
    backlogs: Vec<Box<Backlog<T>>>,
    /// What they take, together.
    bytes: usize,
}

impl<T> Spares<T> {
    pub fn new() -> Self {
        Self(Mutex::new(Kept {
            backlogs: Vec::new(),
            bytes: 0,
        }))
    }

    pub fn take(&self) -> Box<Backlog<T>> {
        let mut kept = lock(&self.0);
        let Some(backlog) = kept.backlogs.pop() else {
            return Box::new(Backlog::new());
        };
        kept.bytes -= backlog.bytes();
        backlog
    }

    pub fn give(&self, mut backlog: Box<Backlog<T>>) {
        debug_assert!(backlog.is_empty(), "a spare backlog holds nothing");
        // The next lane may be a short one, and there are many of these.
        backlog.spare.truncate(1);
        backlog.expiry = None;
        let bytes = backlog.bytes();
        let mut kept = lock(&self.0);
        if kept.bytes + bytes <= SPARE_BYTES {
            kept.bytes += bytes;
            kept.backlogs.push(backlog);
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_across_chunks_and_counts() {
        let mut backlog = Backlog::new();
        let (mut next_in, mut next_out) = (0_u32, 0_u32);
        for round in 0..40_u32 {
            for _ in 0..round * 7 {
                backlog.push_back(next_in);
                next_in += 1;
            }
            for _ in 0..round * 6 {
                assert_eq!(backlog.pop_front(), Some(next_out));
                next_out += 1;
            }
            assert_eq!(backlog.len() as u32, next_in - next_out);
            assert_eq!(backlog.is_empty(), next_in == next_out);
            assert_eq!(backlog.iter_mut().count() as u32, next_in - next_out);
        }
        while let Some(item) = backlog.pop_front() {
            assert_eq!(item, next_out);
            next_out += 1;
        }
        assert_eq!(next_in, next_out);
        assert!(backlog.more.capacity() <= 4 * SPARE_CHUNKS);
    }

    fn holding(items: u32) -> Backlog<u32> {
        let mut backlog = Backlog::new();
        (0..items).for_each(|item| backlog.push_back(item));
        backlog
    }

    #[test]
    fn what_is_put_in_front_comes_out_first() {
        let mut backlog = holding(200);
        backlog.push_front(1_000);
        assert_eq!((backlog.front(), backlog.len()), (Some(&1_000), 201));
        let expected: Vec<_> = std::iter::once(1_000).chain(0..200).collect();
        assert_eq!(backlog.iter().copied().collect::<Vec<_>>(), expected);
        backlog.iter_mut().rev().for_each(|item| *item += 1);
        let items = std::iter::from_fn(|| backlog.pop_front());
        assert!(items.eq(expected.iter().map(|item| item + 1)));
    }

    #[test]
    fn what_is_kept_stays_in_its_order() {
        let mut backlog = holding(200);
        backlog.retain(|item| item % 3 == 0);
        assert_eq!(backlog.len(), 67);
        let items = std::iter::from_fn(|| backlog.pop_front());
        assert!(items.eq((0..200).step_by(3)));
        assert!(backlog.is_empty() && backlog.front().is_none());
    }

    #[test]
    fn the_first_chunk_grows_by_half_and_the_others_are_whole() {
        let mut backlog = Backlog::new();
        let mut room = Vec::new();
        for item in 0..CHUNK {
            backlog.push_back(item);
            room.push(backlog.first.capacity());
        }
        room.dedup();
        assert_eq!(room, [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 64]);
        assert!(backlog.more.is_empty());
        backlog.push_back(CHUNK);
        assert_eq!((backlog.more.len(), backlog.more[0].capacity()), (1, CHUNK));
        assert_eq!(backlog.len(), CHUNK + 1);
        // Behind a chunk that is not full any more, too: the order is kept.
        assert_eq!(backlog.pop_front(), Some(0));
        backlog.push_back(CHUNK + 1);
        assert_eq!((backlog.first.len(), backlog.more[0].len()), (CHUNK - 1, 2));
    }

    #[test]
    fn a_few_emptied_chunks_are_used_again() {
        let mut backlog = holding(10 * CHUNK as u32);
        let left = backlog.more.capacity();
        assert_eq!((backlog.more.len(), backlog.spare.len()), (9, 0));
        while backlog.pop_front().is_some() {}
        assert_eq!((backlog.more.len(), backlog.spare.len()), (0, SPARE_CHUNKS));
        assert_eq!(backlog.more.capacity(), left, "it was not long");
        (0..2 * CHUNK as u32 + 1).for_each(|item| backlog.push_back(item));
        assert_eq!(
            (backlog.more.len(), backlog.spare.len()),
            (2, SPARE_CHUNKS - 2)
        );

        let mut long = holding(40 * CHUNK as u32);
        while long.more.len() > 1 {
            assert!(long.pop_front().is_some());
        }
        assert!(long.more.capacity() > 4 * SPARE_CHUNKS);
        while long.pop_front().is_some() {}
        assert_eq!(long.more.capacity(), 0);
    }

    #[test]
    fn emptied_backlogs_are_used_again() {
        let spares = Spares::new();
        let mut backlog = Box::new(holding(4 * CHUNK as u32));
        while backlog.pop_front().is_some() {}
        assert_eq!(backlog.spare.len(), 3);
        spares.give(backlog);
        assert_eq!(spares.take().spare.len(), 1);
        assert_eq!(spares.take().spare.len(), 0, "there was one");
        // Two chunks of four bytes an item, and what holds them.
        let (slots, chunks) = (2 * CHUNK * 4, 4 * size_of::<VecDeque<u32>>());
        let most = SPARE_BYTES / (slots + chunks + size_of::<Backlog<u32>>());
        for _ in 0..most + 9 {
            let mut backlog = Box::new(holding(4 * CHUNK as u32));
            while backlog.pop_front().is_some() {}
            spares.give(backlog);
        }
        assert_eq!(lock(&spares.0).backlogs.len(), most);
        (0..most + 9).for_each(|_| drop(spares.take()));
        assert_eq!(lock(&spares.0).bytes, 0);
    }

    #[test]
    fn a_long_backlog_wastes_less_than_a_chunk() {
        let mut backlog = Backlog::new();
        for item in 0..100_000_u64 {
            backlog.push_back(item);
        }
        let slots =
            backlog.first.capacity() + backlog.more.iter().map(VecDeque::capacity).sum::<usize>();
        assert!(slots < 100_000 * 115 / 100, "{slots} slots");
    }
}
