//! The keys whose handlers have waited longest, in sum.
//!
//! The sketch is *space-saving*: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient computation of
//! frequent and top-k elements in data streams", ICDT 2005. With `m` counters and a total weight of
//! `N`, whatever weighs more than `N / m` is in it, and no count is too high by more than `N / m`.

use std::collections::BTreeMap;

use super::Ranking;

/// Most counters.
pub(crate) const MOST: usize = 256;

/// Half of what was counted is forgotten after this, in nanoseconds.
pub(crate) const HALF_LIFE: u64 = 60_000_000_000;

/// Sums of time by key, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    ranking: Ranking,
    /// How much of a count may be that of others.
    errors: BTreeMap<u64, u64>,
    /// When half was forgotten for the last time, in half-lives.
    halved: u64,
    /// When the handlers that wait were looked at for the last time.
    sampled: u64,
    /// How often they were.
    samples: usize,
}

impl Busy {
    /// The handlers that wait are looked at now: how much each of them counts, and how many times
    /// they were looked at before.
    ///
    /// On average the samples add up to the time itself, however short the waits are.
    pub(crate) fn sample(&mut self, now: u64) -> (u64, usize) {
        let weight = now.saturating_sub(self.sampled);
        self.sampled = now;
        self.samples = self.samples.wrapping_add(1);
        (weight, self.samples - 1)
    }

    /// A handler of this key has waited for so long.
    pub(crate) fn add(&mut self, hash: u64, weight: u64, now: u64) {
        self.forget(now);
        if let Some(count) = self.ranking.score(hash) {
            self.ranking.set(hash, count.saturating_add(weight));
            return;
        }
        let mut inherited = 0;
        if self.ranking.len() >= MOST
            && let Some((least, count)) = self.ranking.least()
        {
            self.ranking.remove(least);
            self.errors.remove(&least);
            inherited = count;
        }
        self.ranking.set(hash, inherited.saturating_add(weight));
        self.errors.insert(hash, inherited);
    }

    /// Halves what is old.
    fn forget(&mut self, now: u64) {
        let period = now / HALF_LIFE;
        let times = period.saturating_sub(self.halved).min(63);
        if times > 0 {
            self.halved = period;
            self.ranking.scale(|count| count >> times);
            self.errors.values_mut().for_each(|error| *error >>= times);
        }
    }

    /// The sum of one key: at most, and at least.
    pub(crate) fn spell(&mut self, hash: u64, now: u64) -> (u64, u64) {
        self.forget(now);
        let most = self.ranking.score(hash).unwrap_or(0);
        let error = self.errors.get(&hash).copied().unwrap_or(0);
        (most, most.saturating_sub(error))
    }

    /// All that are counted.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.ranking.entries().map(|(hash, _)| hash)
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The bound of the paper, for streams in which a few keys are many.
        #[test]
        fn nobody_above_the_bound_is_missed(
            stream in proptest::collection::vec(
                (prop_oneof![0_u64..8, 0_u64..4_000], 1_u64..50), 0..5_000),
        ) {
            let mut busy = Busy::default();
            let mut exact = HashMap::<u64, u64>::new();
            for (hash, weight) in &stream {
                busy.add(*hash, *weight, 0);
                *exact.entry(*hash).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            let bound = total / MOST as u64;
            prop_assert!(busy.hashes().count() <= MOST);
            let inside: Vec<_> = busy.hashes().collect();
            for (hash, sum) in exact {
                prop_assert!(sum <= bound || inside.contains(&hash), "{hash}: {sum} > {bound}");
                if inside.contains(&hash) {
                    let (most, least) = busy.spell(hash, 0);
                    prop_assert!(least <= sum && sum <= most && most - least <= bound);
                }
            }
        }
    }

    #[test]
    fn half_is_forgotten_after_a_while() {
        let mut busy = Busy::default();
        busy.add(1, 1_000, 0);
        assert_eq!(busy.spell(1, HALF_LIFE - 1).0, 1_000);
        assert_eq!(busy.spell(1, HALF_LIFE), (500, 500));
        busy.add(2, 600, 3 * HALF_LIFE);
        assert_eq!(busy.spell(1, 3 * HALF_LIFE).0, 125);
        assert_eq!(busy.spell(2, 3 * HALF_LIFE).0, 600);
        assert_eq!(busy.spell(3, 3 * HALF_LIFE), (0, 0));
    }
}
