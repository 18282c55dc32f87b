//! The handlers that wait at this moment.

// Not through the seam: these are marks for a statistic, like those of `beat.rs`, and no schedule.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most places, for any concurrency.
const MOST: usize = 1 << 16;

/// How many neighbours are asked for a free place.
const PROBES: usize = 16;

/// For a handler that found no place, or does not wait.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// A place for each handler in flight, taken when it begins to wait and left when it is ready.
///
/// Taking and leaving is one store each, without a lock. There are twice as many places as the
/// concurrency allows handlers, so one is found at once.
#[derive(Debug)]
pub(crate) struct Waits {
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

/// On a cache line of its own, or handlers on different cores would wait for each other here.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    /// The stamp of the moment, and one; 0: free. Partner: `part`, which a mix of two handlers
    /// misleads to a candidate too many.
    since: AtomicU64,
    hash: AtomicU64,
}

impl Waits {
    pub(crate) fn new(concurrency: usize) -> Self {
        let size = concurrency.clamp(32, MOST / 2) * 2;
        Self {
            size: size.next_power_of_two(),
            places: OnceLock::new(),
        }
    }

    /// A handler begins to wait. `near` spreads: the number of its runner.
    #[inline]
    pub(crate) fn enter(&self, near: u64, hash: u64, since: u64) -> u32 {
        let places = self
            .places
            .get_or_init(|| (0..self.size).map(|_| Place::default()).collect());
        for probe in 0..PROBES {
            let at = (near as usize).wrapping_add(probe) & (self.size - 1);
            let place = &places[at];
            if place.since.load(Ordering::Relaxed) == 0
                && place
                    .since
                    .compare_exchange(0, since + 1, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                place.hash.store(hash, Ordering::Relaxed);
                return at as u32;
            }
        }
        NO_PLACE
    }

    /// The handler is ready, or gone.
    #[inline]
    pub(crate) fn leave(&self, place: u32) {
        let places = self.places.get();
        let place = places.and_then(|places| places.get(place as usize));
        if let Some(place) = place
            && !cfg!(keylane_mutant = "place-kept")
        {
            place.since.store(0, Ordering::Relaxed);
        }
    }

    /// How many places there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Who waits in this part of the places, and since when.
    pub(crate) fn part(&self, from: usize, len: usize) -> Option<Vec<Wait>> {
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

    #[test]
    fn a_place_is_taken_and_left() {
        let waits = Waits::new(256);
        assert_eq!(waits.part(0, 8), None, "nothing has waited yet");
        let first = waits.enter(3, 42, 7);
        let second = waits.enter(3, 43, 0);
        assert_ne!(first, second);
        let [one, other] = [(7, 42), (0, 43)].map(|(since, hash)| Wait { since, hash });
        assert_eq!(waits.part(0, 8), Some(vec![one, other]));
        waits.leave(first);
        waits.leave(NO_PLACE);
        assert_eq!(waits.part(0, 512), Some(vec![other]));
        assert_eq!(waits.part(512, 512), None);
    }

    #[test]
    fn all_that_the_concurrency_allows_find_a_place() {
        // Also when the numbers of the runners have gaps, and those left are the long ones.
        let waits = Waits::new(1_000);
        let places: Vec<_> = (0..1_000).map(|n| waits.enter(n * 3, n, n)).collect();
        assert!(!places.contains(&NO_PLACE));
    }

    #[test]
    fn without_room_a_handler_is_only_not_seen() {
        let waits = Waits::new(1);
        let places: Vec<_> = (0..200).map(|n| waits.enter(n, n, n)).collect();
        assert_eq!(
            places.iter().filter(|place| **place == NO_PLACE).count(),
            136
        );
    }
}
