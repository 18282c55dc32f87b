//! Which key the i-th message has.

use std::sync::OnceLock;

/// Keys of the Zipf workload.
pub const ZIPF_KEYS: usize = 100_000;

/// Draws made once and walked again and again by every contender.
const DRAWS: usize = 1 << 20;

/// How the keys of a measurement are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// 0, 1, … n − 1, and again.
    Cycle(u64),
    /// Every message has a key of its own.
    Distinct,
    /// Zipf with exponent 1.0 over [`ZIPF_KEYS`] keys.
    Zipf,
}

impl Keys {
    /// As the name of a workload spells it.
    pub fn label(self) -> String {
        match self {
            Self::Cycle(n) if n >= 1_000_000 => format!("{}M", n / 1_000_000),
            Self::Cycle(n) if n >= 1_000 => format!("{}k", n / 1_000),
            Self::Cycle(n) => n.to_string(),
            Self::Distinct => "distinct".to_owned(),
            Self::Zipf => "zipf".to_owned(),
        }
    }

    /// How many different keys `messages` messages have at most.
    pub fn count(self, messages: u64) -> u64 {
        match self {
            Self::Cycle(n) => n,
            Self::Distinct => messages,
            Self::Zipf => ZIPF_KEYS as u64,
        }
    }

    /// The key of the i-th message of one producer of several, each of which sends `share`.
    ///
    /// Producers share the keys, except where all are distinct; each starts elsewhere.
    pub fn key(self, i: u64, producer: u64, share: u64) -> u64 {
        match self {
            Self::Cycle(n) => (i + producer * (n / 4)) % n,
            Self::Distinct => producer * share + i,
            Self::Zipf => {
                let at = i as usize + producer as usize * (DRAWS / 4);
                u64::from(zipf()[at % DRAWS])
            }
        }
    }

    /// Order slots needed: one per key and producer, since order is promised to each of them.
    pub fn slots(self, messages: u64, producers: u64) -> usize {
        let keys = self.count(messages) as usize;
        if self == Self::Distinct {
            keys
        } else {
            keys * producers as usize
        }
    }

    /// Where the order of this producer's messages of this key is checked.
    pub fn slot(self, key: u64, producer: u64, producers: u64) -> u32 {
        let slot = if self == Self::Distinct {
            key
        } else {
            key * producers + producer
        };
        slot as u32
    }
}

/// The key draws, the same for every contender and every run.
fn zipf() -> &'static [u32] {
    static TABLE: OnceLock<Box<[u32]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut sum = 0.0;
        let heights: Vec<f64> = (1..=ZIPF_KEYS)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        let mut state = 42;
        (0..DRAWS)
            .map(|_| {
                let at = uniform(&mut state) * sum;
                heights
                    .partition_point(|height| *height < at)
                    .min(ZIPF_KEYS - 1) as u32
            })
            .collect()
    })
}

/// A number in [0, 1), by the SplitMix64 generator.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as f64 / (u64::MAX as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_zipf_key_has_its_share() {
        let share = zipf().iter().filter(|key| **key == 0).count() as f64 / DRAWS as f64;
        // One over the harmonic number of 100,000.
        assert!((share - 1.0 / 12.09).abs() < 0.002, "{share}");
    }

    #[test]
    fn distinct_keys_of_several_producers_do_not_meet() {
        let mut seen = std::collections::HashSet::new();
        for producer in 0..4 {
            for i in 0..1_000 {
                assert!(seen.insert(Keys::Distinct.key(i, producer, 1_000)));
            }
        }
    }

    #[test]
    fn slots_of_several_producers_do_not_meet() {
        let keys = Keys::Cycle(10);
        let mut seen = std::collections::HashSet::new();
        for producer in 0..4 {
            for key in 0..10 {
                let slot = keys.slot(key, producer, 4);
                assert!((slot as usize) < keys.slots(1_000, 4));
                assert!(seen.insert(slot));
            }
        }
    }
}
