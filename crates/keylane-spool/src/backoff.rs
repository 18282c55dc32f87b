//! The wait after a failure.

use std::time::Duration;

/// A wait that grows with each failure in a row. Pure: the dice is an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap: cap.max(base),
            failures: 0,
        }
    }

    /// Counts a failure. The wait doubles from `base` to `cap`, and is spread between half of it
    /// and all of it, so that producers that failed together do not come back together.
    ///
    /// `dice` is a random number from 0 to 1.
    pub(super) fn failed(&mut self, dice: f64) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let wait = self.base.checked_mul(factor).unwrap_or(self.cap);
        wait.min(self.cap).mul_f64(1.0 - dice.clamp(0.0, 1.0) / 2.0)
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Returns the failures since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn waits_stay_between_half_the_base_and_the_cap(
            base in 1_u64..10_000,
            cap in 1_u64..100_000,
            dice in proptest::collection::vec(0.0..=1.0, 1..80),
        ) {
            let base = Duration::from_millis(base);
            let cap = Duration::from_millis(cap).max(base);
            let mut backoff = Backoff::new(base, cap);
            let mut full = base;
            for dice in dice {
                let wait = backoff.failed(dice);
                prop_assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
                full = (full * 2).min(cap);
            }
            backoff.succeeded();
            prop_assert!(backoff.failed(0.0) == base);
        }
    }
}
