//! The heaviest of many keys, with few counters.
//!
//! The sketch is *Space-Saving*: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient computation
//! of frequent and top-k elements in data streams", ICDT 2005. With `m` counters and a total weight
//! of `N`, each key that weighs more than `N / m` has a counter, and no counter is too high by more
//! than `N / m`.

use std::collections::BTreeMap;

use super::Ranking;

/// Most counters.
const MOST: usize = 256;

/// Weights by key.
#[derive(Debug, Default)]
pub(super) struct SpaceSaving {
    counters: Ranking,
    /// How much of a counter may be the weight of other keys.
    errors: BTreeMap<u64, u64>,
}

impl SpaceSaving {
    /// Adds to the weight of a key. One without a counter takes over the least one.
    pub(super) fn add(&mut self, hash: u64, weight: u64) {
        if let Some(count) = self.counters.score(hash) {
            self.counters.set(hash, count.saturating_add(weight));
            return;
        }
        let mut inherited = 0;
        if self.counters.len() >= MOST
            && let Some((least, count)) = self.counters.least()
        {
            self.counters.remove(least);
            self.errors.remove(&least);
            inherited = count;
        }
        self.counters.set(hash, inherited.saturating_add(weight));
        self.errors.insert(hash, inherited);
    }

    /// Halves all weights so many times.
    pub(super) fn halve(&mut self, times: u32) {
        self.counters.scale(|count| count >> times);
        self.errors.values_mut().for_each(|error| *error >>= times);
    }

    /// The weight of a key: at most, and at least.
    pub(super) fn bounds(&self, hash: u64) -> (u64, u64) {
        let most = self.counters.score(hash).unwrap_or(0);
        let error = self.errors.get(&hash).copied().unwrap_or(0);
        (most, most.saturating_sub(error))
    }

    /// All keys with a counter.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.counters.entries().map(|(hash, _)| hash)
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(testkit_cases::cases(48))]

        /// The bound of the paper, for streams in which a few keys are many.
        #[test]
        fn no_key_above_the_bound_is_missed(
            stream in proptest::collection::vec(
                (prop_oneof![0_u64..8, 0_u64..4_000], 1_u64..50), 0..5_000),
        ) {
            let mut sketch = SpaceSaving::default();
            let mut exact = HashMap::<u64, u64>::new();
            for (hash, weight) in &stream {
                sketch.add(*hash, *weight);
                *exact.entry(*hash).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            let bound = total / MOST as u64;
            prop_assert!(sketch.hashes().count() <= MOST);
            let inside: Vec<_> = sketch.hashes().collect();
            for (hash, sum) in exact {
                prop_assert!(sum <= bound || inside.contains(&hash), "{hash}: {sum} > {bound}");
                if inside.contains(&hash) {
                    let (most, least) = sketch.bounds(hash);
                    prop_assert!(least <= sum && sum <= most && most - least <= bound);
                }
            }
        }
    }
}
