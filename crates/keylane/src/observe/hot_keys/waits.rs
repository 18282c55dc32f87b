//! The handlers that wait at this moment.

// Not through the seam: these are marks for a statistic, like those of `stuck.rs`, and no schedule.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most places, for any number of runners.
const MOST: usize = 1 << 16;

/// Neighbouring runners have places on different cache lines, or handlers on different cores would
/// wait for each other here: each next runner is this part of all places further on.
const STRIDES: usize = 8;

/// A place for each runner, in which it says what its handler waits for.
///
/// A runner has a place of its own, by its number, so saying it is a few stores without a lock. A
/// runner whose number is too large is not seen.
#[derive(Debug)]
pub(super) struct Waits {
    size: usize,
    /// Made for the first handler that waits.
    places: OnceLock<Box<[Place]>>,
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
            places: OnceLock::new(),
        }
    }

    /// Where a runner says it: as far from its neighbours as possible.
    #[inline]
    fn index(&self, runner: u32) -> usize {
        let runner = runner as usize;
        if runner >= self.size {
            return runner;
        }
        (runner % STRIDES) * (self.size / STRIDES) + runner / STRIDES
    }

    /// The handler of this runner begins to wait.
    #[inline]
    pub(super) fn enter(&self, runner: u32, hash: u64, since: u64) {
        let places = self
            .places
            .get_or_init(|| (0..self.size).map(|_| Place::default()).collect());
        if let Some(place) = places.get(self.index(runner)) {
            place.hash.store(hash, Ordering::Relaxed);
            place.since.store(since + 1, Ordering::Relaxed);
        }
    }

    /// The handler of this runner is ready, or gone.
    #[inline]
    pub(super) fn leave(&self, runner: u32) {
        let places = self.places.get();
        let place = places.and_then(|places| places.get(self.index(runner)));
        if let Some(place) = place
            && !cfg!(keylane_mutant = "place-kept")
        {
            place.since.store(0, Ordering::Relaxed);
        }
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// The handlers that wait in this part of the slots, and since when.
    pub(super) fn part(&self, from: usize, len: usize) -> Option<Vec<Wait>> {
        let places = self.places.get()?;
        let part = places.get(from..places.len().min(from + len))?;
        if part.is_empty() {
            return None;
        }
        Some(part.iter().filter_map(Place::wait).collect())
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
        assert_eq!(waits.part(0, 8), None, "nothing has waited yet");
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
            let mut places: Vec<_> = (0..runners as u32).map(|n| waits.index(n)).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), runners);
            assert!(places.iter().all(|place| *place < waits.len()));
        }
    }

    #[test]
    fn the_places_of_neighbours_are_on_lines_of_their_own() {
        let waits = Waits::new(64);
        let mut first: Vec<_> = (0..STRIDES as u32).map(|n| waits.index(n)).collect();
        first.sort_unstable();
        let lines = first.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(lines.min() >= Some(128 / size_of::<Place>()));
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
