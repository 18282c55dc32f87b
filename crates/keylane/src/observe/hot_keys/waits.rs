//! The handlers that wait at this moment.

// Not through the seam `rt`: these are marks for a statistic, and no schedule depends on them.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slots of the first table: 2 KiB, for the many dispatchers in which few handlers wait.
const FIRST: usize = 32;

/// Each further table is larger by this factor, up to what the concurrency needs.
const GROWTH: usize = 8;

/// Most slots of one table, for any concurrency.
const MOST: usize = 1 << 16;

/// Tables from `FIRST` to `MOST` slots.
const TABLES: usize = 5;

/// How many neighbouring slots are tried before a larger table.
const PROBES: usize = 16;

/// For a handler that found no slot, or does not wait.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A slot for each handler in flight, taken when it begins to wait and left when it is ready.
///
/// Taking and leaving is one store each, without a lock. There are tables of growing size, each
/// allocated when the one before it is crowded; new handlers look in the newest. The largest has
/// twice as many slots as the concurrency allows handlers, so a slot is found at once.
#[derive(Debug)]
pub(super) struct Waits {
    /// Slots of the largest table.
    most: usize,
    tables: [OnceLock<Box<[Slot]>>; TABLES],
    /// The table in which new handlers look. Relaxed: an older one does as well, if it has room.
    newest: AtomicUsize,
}

/// A handler that waits. The oldest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) since: u64,
    pub(crate) hash: u64,
}

/// On a cache line of its own, or handlers on different cores would slow each other down here.
///
/// Both are relaxed. `Slot::wait` may then see the moment of one handler with the hash of another:
/// a query has a candidate too many, and a sample counts for the wrong key once.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// The moment since which it waits, and one; 0: free.
    since: AtomicU64,
    hash: AtomicU64,
}

impl Waits {
    pub(super) fn new(concurrency: usize) -> Self {
        let most = concurrency.clamp(FIRST, MOST / 2) * 2;
        Self {
            most: most.next_power_of_two(),
            tables: std::array::from_fn(|_| OnceLock::new()),
            newest: AtomicUsize::new(0),
        }
    }

    /// A handler begins to wait. `near` is the number of its runner, which spreads them.
    #[inline]
    pub(super) fn enter(&self, near: u64, hash: u64, since: u64) -> u32 {
        let table = self.newest.load(Ordering::Relaxed);
        match self.enter_table(table, near, hash, since) {
            NO_SLOT => self.enter_larger(table, near, hash, since),
            slot => slot,
        }
    }

    #[inline]
    fn enter_table(&self, table: usize, near: u64, hash: u64, since: u64) -> u32 {
        let slots = self.tables[table].get_or_init(|| self.allocate(table));
        for probe in 0..PROBES {
            let at = (near as usize).wrapping_add(probe) & (slots.len() - 1);
            let slot = &slots[at];
            if slot.since.load(Ordering::Relaxed) == 0
                && slot
                    .since
                    .compare_exchange(0, since + 1, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                slot.hash.store(hash, Ordering::Relaxed);
                return (table * MOST + at) as u32;
            }
        }
        NO_SLOT
    }

    /// This table is crowded.
    #[cold]
    fn enter_larger(&self, crowded: usize, near: u64, hash: u64, since: u64) -> u32 {
        for table in crowded + 1..TABLES {
            if self.size(table - 1) == self.most {
                break;
            }
            self.newest.fetch_max(table, Ordering::Relaxed);
            let slot = self.enter_table(table, near, hash, since);
            if slot != NO_SLOT {
                return slot;
            }
        }
        NO_SLOT
    }

    #[cold]
    fn allocate(&self, table: usize) -> Box<[Slot]> {
        (0..self.size(table)).map(|_| Slot::default()).collect()
    }

    /// How many slots a table has, once it is allocated.
    fn size(&self, table: usize) -> usize {
        (FIRST * GROWTH.pow(table as u32)).min(self.most)
    }

    /// The handler is ready, or gone.
    #[inline]
    pub(super) fn leave(&self, slot: u32) {
        let slot = slot as usize;
        let table = self.tables.get(slot / MOST).and_then(OnceLock::get);
        let slot = table.and_then(|slots| slots.get(slot % MOST));
        if let Some(slot) = slot
            && !cfg!(keylane_mutant = "place-kept")
        {
            slot.since.store(0, Ordering::Relaxed);
        }
    }

    /// How many slots there are, in all tables.
    pub(super) fn len(&self) -> usize {
        self.allocated().map(<[Slot]>::len).sum()
    }

    /// The handlers that wait in this part of the slots. `None`: no slot is so far behind.
    pub(super) fn part(&self, from: usize, len: usize) -> Option<Vec<Wait>> {
        if from >= self.len() {
            return None;
        }
        let part = self.allocated().flatten().skip(from).take(len);
        Some(part.filter_map(Slot::wait).collect())
    }

    fn allocated(&self) -> impl Iterator<Item = &[Slot]> {
        self.tables.iter().filter_map(|table| Some(&**table.get()?))
    }
}

impl Slot {
    fn wait(&self) -> Option<Wait> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        let hash = self.hash.load(Ordering::Relaxed);
        Some(Wait { since, hash })
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_and_left() {
        let waits = Waits::new(256);
        assert_eq!(waits.part(0, 8), None, "nothing has waited yet");
        let first = waits.enter(3, 42, 7);
        let second = waits.enter(3, 43, 0);
        assert_ne!(first, second);
        let [one, other] = [(7, 42), (0, 43)].map(|(since, hash)| Wait { since, hash });
        assert_eq!(waits.part(0, 8), Some(vec![one, other]));
        waits.leave(first);
        waits.leave(NO_SLOT);
        assert_eq!(waits.part(0, 512), Some(vec![other]));
        assert_eq!(waits.part(FIRST, 512), None);
    }

    #[test]
    fn all_that_the_concurrency_allows_find_a_slot() {
        for concurrency in [1, 20, 40, 1_000, 32_768] {
            // Also when the numbers of the runners have gaps, and those left are the long ones.
            let waits = Waits::new(concurrency);
            let slots: Vec<_> = (0..concurrency as u64)
                .map(|n| waits.enter(n * 3, n, n))
                .collect();
            assert!(!slots.contains(&NO_SLOT), "{concurrency}");
            let waiting = waits.part(0, usize::MAX).unwrap();
            assert_eq!(waiting.len(), concurrency);
            slots.into_iter().for_each(|slot| waits.leave(slot));
            assert_eq!(waits.part(0, usize::MAX), Some(Vec::new()));
        }
    }

    #[test]
    fn tables_are_as_large_as_they_are_needed() {
        let waits = Waits::new(1_000);
        waits.leave(waits.enter(1, 1, 1));
        assert_eq!(waits.len(), FIRST);
        for n in 0..FIRST as u64 {
            assert_ne!(waits.enter(n, n, n), NO_SLOT);
        }
        assert_eq!(waits.len(), FIRST);
        assert_ne!(waits.enter(1, 1, 1), NO_SLOT);
        assert_eq!(waits.len(), FIRST + FIRST * GROWTH);
        assert_eq!(waits.part(FIRST, 512).map(|part| part.len()), Some(1));
    }

    #[test]
    fn without_room_a_handler_is_only_not_seen() {
        let waits = Waits::new(1);
        let slots: Vec<_> = (0..200).map(|n| waits.enter(n, n, n)).collect();
        let found = slots.iter().filter(|slot| **slot != NO_SLOT).count();
        assert_eq!((found, waits.len()), (FIRST + 2 * FIRST, FIRST + 2 * FIRST));
    }
}
