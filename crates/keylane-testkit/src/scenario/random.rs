//! Random numbers that are the same in every run.

use super::trials;

/// A source of random numbers (splitmix64). The same seed gives the same numbers; each value of the
/// environment variable `KEYLANE_SEED` gives other ones.
///
/// ```
/// use keylane_testkit::scenario::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert!((0..100).all(|_| one.below(6) == other.below(6)));
/// ```
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the source of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ trials::seed().wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// Returns a number below `n`.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Returns true once in `n` times.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 0 up to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
