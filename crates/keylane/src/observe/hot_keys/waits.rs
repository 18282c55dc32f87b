//! The handlers that wait at this moment.

// Not through the seam: these are marks for a statistic, like those of `stuck.rs`, and no schedule.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most places, for any number of runners.
const MOST: usize = 1 << 16;

/// Neighbouring runners have places on different cache lines, or handlers on different cores would
/// wait for each other here: each next runner has its place in the next of so many rows.
const ROWS: usize = 8;

/// A place for each runner, in which it says what its handler waits for.
///
/// A runner has a place of its own, by its number, so saying it is a few stores without a lock. A
/// runner whose number is too large is not seen.
#[derive(Debug)]
pub(super) struct Waits {
    size: usize,
    /// Each is made for the first handler in it that waits: a dispatcher with few has few.
    rows: [OnceLock<Box<[Place]>>; ROWS],
}

/// A handler that waits. The oldest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) since: u64,
    pub(crate) hash: u64,
}

/// The handler of one runner.
#[derive(Debug, Default)]
struct Place {
    /// The stamp of the moment, and one; 0: nothing waits. Relaxed, as is `hash`. Partner:
    /// `Place::wait`, which a mix of two handlers misleads to a candidate too many.
    since: AtomicU64,
    hash: AtomicU64,
}

impl Waits {
    /// For so many runners at once.
    pub(super) fn new(runners: usize) -> Self {
        Self {
            size: runners.clamp(64, MOST).next_power_of_two(),
            rows: Default::default(),
        }
    }

    /// Where a runner says it: the row, and the place in it.
    #[inline]
    fn index(runner: u32) -> (usize, usize) {
        let runner = runner as usize;
        (runner % ROWS, runner / ROWS)
    }

    /// The handler of this runner begins to wait.
    #[inline]
    pub(super) fn enter(&self, runner: u32, hash: u64, since: u64) {
        let (row, index) = Self::index(runner);
        let row = self.rows[row].get_or_init(|| {
            let places = 0..self.size / ROWS;
            places.map(|_| Place::default()).collect()
        });
        if let Some(place) = row.get(index) {
            place.hash.store(hash, Ordering::Relaxed);
            place.since.store(since + 1, Ordering::Relaxed);
        }
    }

    /// The handler of this runner is ready, or gone.
    #[inline]
    pub(super) fn leave(&self, runner: u32) {
        let (row, index) = Self::index(runner);
        if let Some(place) = self.rows[row].get().and_then(|row| row.get(index)) {
            place.since.store(0, Ordering::Relaxed);
        }
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// The handlers that wait in this part of the places, and since when. `None`: no place is
    /// there.
    pub(super) fn part(&self, from: usize, len: usize) -> Option<Vec<Wait>> {
        if from >= self.size {
            return None;
        }
        let part = from..self.size.min(from.saturating_add(len));
        let rows = part.map(|place| (place % ROWS, place / ROWS));
        let places = rows.filter_map(|(row, index)| self.rows[row].get()?.get(index));
        Some(places.filter_map(Place::wait).collect())
    }
}

impl Place {
    fn wait(&self) -> Option<Wait> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        let hash = self.hash.load(Ordering::Relaxed);
        Some(Wait { since, hash })
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    fn all(waits: &Waits) -> Option<Vec<Wait>> {
        let mut all = waits.part(0, MOST)?;
        all.sort_unstable();
        Some(all)
    }

    #[test]
    fn a_handler_is_seen_while_it_waits() {
        let waits = Waits::new(256);
        assert_eq!(all(&waits), Some(vec![]), "nothing has waited yet");
        waits.enter(3, 42, 7);
        waits.enter(4, 43, 0);
        let [one, other] = [(7, 42), (0, 43)].map(|(since, hash)| Wait { since, hash });
        assert_eq!(all(&waits), Some(vec![other, one]));
        waits.leave(3);
        assert_eq!(all(&waits), Some(vec![other]));
        assert_eq!(waits.part(waits.len(), 512), None);
    }

    #[test]
    fn every_runner_has_a_place_of_its_own() {
        for runners in [1, 64, 1_000, MOST] {
            let waits = Waits::new(runners);
            (0..runners as u32).for_each(|n| waits.enter(n, n.into(), 0));
            let mut seen: Vec<_> = all(&waits).unwrap().iter().map(|wait| wait.hash).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..runners as u64));
        }
    }

    #[test]
    fn neighbours_are_in_rows_of_their_own() {
        let mut rows: Vec<_> = (5..5 + ROWS as u32).map(|n| Waits::index(n).0).collect();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..ROWS));
    }

    #[test]
    fn a_runner_without_a_place_is_only_not_seen() {
        let waits = Waits::new(1);
        (0..200).for_each(|n| waits.enter(n, n.into(), n.into()));
        assert_eq!(all(&waits).map(|all| all.len()), Some(64));
        (0..200).for_each(|n| waits.leave(n));
        assert_eq!(all(&waits), Some(vec![]));
    }
}
