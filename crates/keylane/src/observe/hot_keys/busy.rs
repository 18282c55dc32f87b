//! The keys whose handlers have waited longest, in sum, with the last minutes counting most.

use super::SpaceSaving;

/// Half of what was counted is forgotten after this, in nanoseconds.
const HALF_LIFE: u64 = 60_000_000_000;

/// Sums of time by key, in nanoseconds, counted by samples.
#[derive(Debug, Default)]
pub(super) struct Busy {
    sketch: SpaceSaving,
    /// When half was forgotten for the last time, in half-lives.
    halved: u64,
    /// The moment of the last sample.
    sampled: u64,
    samples: usize,
}

impl Busy {
    /// Samples begin again, and what was before this moment counts for nothing.
    pub(super) fn resume(&mut self, at: u64) {
        self.sampled = at;
    }

    /// A sample is taken now. Returns how much each handler that waits counts, and how many samples
    /// there were before.
    ///
    /// Each counts for the time since the last sample. On average that adds up to the time itself,
    /// however short the waits are.
    pub(super) fn sample(&mut self, now: u64) -> (u64, usize) {
        let weight = now.saturating_sub(self.sampled);
        self.sampled = now;
        self.samples = self.samples.wrapping_add(1);
        (weight, self.samples - 1)
    }

    /// A handler of this key has waited for so long.
    pub(super) fn add(&mut self, hash: u64, weight: u64, now: u64) {
        self.forget(now);
        self.sketch.add(hash, weight);
    }

    /// Halves what is old.
    fn forget(&mut self, now: u64) {
        let period = now / HALF_LIFE;
        let times = period.saturating_sub(self.halved).min(63);
        if times > 0 {
            self.halved = period;
            self.sketch.halve(times as u32);
        }
    }

    /// The sum of one key: at most, and at least.
    pub(super) fn bounds(&mut self, hash: u64, now: u64) -> (u64, u64) {
        self.forget(now);
        self.sketch.bounds(hash)
    }

    /// All keys that are counted.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.sketch.hashes()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_after_a_while() {
        let mut busy = Busy::default();
        busy.add(1, 1_000, 0);
        assert_eq!(busy.bounds(1, HALF_LIFE - 1).0, 1_000);
        assert_eq!(busy.bounds(1, HALF_LIFE), (500, 500));
        busy.add(2, 600, 3 * HALF_LIFE);
        assert_eq!(busy.bounds(1, 3 * HALF_LIFE).0, 125);
        assert_eq!(busy.bounds(2, 3 * HALF_LIFE).0, 600);
        assert_eq!(busy.bounds(3, 3 * HALF_LIFE), (0, 0));
    }

    #[test]
    fn a_sample_counts_for_the_time_since_the_last_one_and_not_for_a_rest() {
        let mut busy = Busy::default();
        assert_eq!(busy.sample(10), (10, 0));
        assert_eq!(busy.sample(25), (15, 1));
        busy.resume(1_000);
        assert_eq!(busy.sample(1_010), (10, 2));
    }
}
