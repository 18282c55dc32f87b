//! The public form of a rate.

use std::time::Duration;

use keylane_connector::ConfigError;

/// A number of starts per period, and how many of them may come at once, over all processes.
///
/// Starts are spread evenly: `per_second(10)` is one every 100 ms, and not ten at the beginning of
/// each second. Unused starts are saved, up to the [`burst`](Self::burst). The time between two
/// starts is rounded up to a whole nanosecond, so that the rate is never exceeded.
///
/// It is the Generic Cell Rate Algorithm of ITU-T Recommendation I.371, in its form of virtual
/// scheduling.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_redis::Quota;
///
/// // A partner allows 100 calls a second, and does not mind 20 at once.
/// let calls = Quota::per_second(100).burst(20);
/// // Three text messages a day, each at least eight hours after the one before.
/// let texts = Quota::per(3, Duration::from_secs(24 * 3600));
/// # let _ = (calls, texts);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    count: u32,
    period: Duration,
    burst: Option<u32>,
}

impl Quota {
    /// Creates a quota of this many starts per second.
    pub const fn per_second(count: u32) -> Self {
        Self::per(count, Duration::from_secs(1))
    }

    /// Creates a quota of this many starts per period.
    pub const fn per(count: u32, period: Duration) -> Self {
        Self {
            count,
            period,
            burst: None,
        }
    }

    /// Sets how many may start at once after an idle time. The default is the number of starts in
    /// 100 milliseconds, and 1 for rates of less than 20 a second. The burst also covers the
    /// permits that a process borrows, and those that became free during its request.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Returns the form that the scripts use.
    ///
    /// # Errors
    ///
    /// Returns `Zero` if nothing could ever start, or if the period has no length. Returns
    /// `TooLarge` if there is more than one start per nanosecond, or if saving the whole burst
    /// takes more than 100 days.
    pub(super) fn limit(&self, setting: &'static str) -> Result<Limit, ConfigError> {
        if self.count == 0 || self.burst == Some(0) || self.period.is_zero() {
            return Err(ConfigError::zero(setting));
        }
        let count = u128::from(self.count);
        let each = self.period.as_nanos().div_ceil(count);
        let burst = self
            .burst
            .unwrap_or_else(|| u32::try_from((AT_ONCE / each).max(1)).unwrap_or(u32::MAX));
        let is_exact = self.period.as_nanos() >= count;
        match u64::try_from(each * u128::from(burst)) {
            Ok(full) if is_exact && full <= LONGEST => Ok(Limit {
                each: each as u64,
                burst,
            }),
            _ => Err(ConfigError::new(setting, "is too large")),
        }
    }
}

/// The default burst, as the nanoseconds in which the rate yields it.
const AT_ONCE: u128 = 100_000_000;

/// 100 days in nanoseconds: less than 2^53, the limit of exact numbers in a script.
const LONGEST: u64 = 100 * 24 * 60 * 60 * 1_000_000_000;

/// A rate, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Nanoseconds from one start to the next at an even pace.
    pub(super) each: u64,
    pub(super) burst: u32,
}

impl Limit {
    /// Returns the part of one of this many processes.
    pub(super) fn share(self, processes: u32) -> Self {
        Self {
            each: self.each.saturating_mul(u64::from(processes)),
            burst: (self.burst / processes).max(1),
        }
    }

    fn full(self) -> u64 {
        self.each.saturating_mul(u64::from(self.burst))
    }

    /// Takes up to this many permits now, as the script does. `word` is the time at which all
    /// permits that were taken would be used up evenly; times are nanoseconds since an epoch of the
    /// caller's, and 0 is a word that was never used.
    pub(super) fn take(self, word: &mut u64, now: u64, wanted: u32) -> u32 {
        let taken = self.free(*word, now).min(wanted);
        if taken > 0 {
            let more = self.each.saturating_mul(u64::from(taken));
            *word = now.max(*word).saturating_add(more);
        }
        taken
    }

    /// Returns how many permits there are now.
    pub(super) fn free(self, word: u64, now: u64) -> u32 {
        let free = self.full().saturating_sub(ahead(word, now)) / self.each;
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// Returns how many nanoseconds it takes until there is one more.
    pub(super) fn wait(self, word: u64, now: u64) -> u64 {
        let next = ahead(word, now).saturating_add(self.each);
        next.saturating_sub(self.full())
    }
}

fn ahead(word: u64, now: u64) -> u64 {
    word.saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_could_never_start_is_refused() {
        for rate in [
            Quota::per_second(0),
            Quota::per_second(1).burst(0),
            Quota::per(1, Duration::ZERO),
        ] {
            let refused = Err(ConfigError::zero("total"));
            assert_eq!(rate.limit("total"), refused, "{rate:?}");
        }
    }

    #[test]
    fn what_scripts_cannot_count_is_refused() {
        let days = 24 * 3600 * SECOND;
        for rate in [
            Quota::per_second(1_000_000_001),
            Quota::per(1, Duration::MAX),
            Quota::per(1, 101 * days),
            Quota::per(1, 51 * days).burst(2),
            Quota::per(u32::MAX, Duration::MAX).burst(u32::MAX),
        ] {
            let refused = Err(ConfigError::new("total", "is too large"));
            assert_eq!(rate.limit("total"), refused, "{rate:?}");
        }
        for rate in [
            Quota::per_second(1_000_000_000).burst(u32::MAX),
            Quota::per(1, 100 * days),
        ] {
            assert!(rate.limit("total").is_ok(), "{rate:?}");
        }
    }

    #[test]
    fn a_burst_is_worth_a_tenth_of_a_second() {
        let burst = |rate: Quota| rate.limit("total").unwrap().burst;
        let bursts = [1, 10, 19, 20, 1_000, 1_000_000].map(|count| burst(Quota::per_second(count)));
        assert_eq!(bursts, [1, 1, 1, 2, 100, 100_000]);
        assert_eq!(burst(Quota::per_second(1_000).burst(3)), 3);
    }

    #[test]
    fn the_interval_is_rounded_up() {
        let limit = Quota::per_second(3).limit("total").unwrap();
        assert_eq!(limit.each, 333_333_334);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn no_window_has_more_than_its_share(
            each in 1..50_u64,
            burst in 1..10_u32,
            asks in prop::collection::vec((0..60_u64, 1..12_u32), 1..80),
        ) {
            let limit = Limit { each, burst };
            let (mut word, mut now) = (0, 0);
            let mut taken = Vec::new();
            for (gap, wanted) in asks {
                now += gap;
                let wait = limit.wait(word, now);
                let free = limit.free(word, now);
                prop_assert_eq!(wait == 0, free > 0);
                let mut later = word;
                prop_assert!(limit.take(&mut later, now + wait, 1) == 1);
                if wait > 0 {
                    let mut early = word;
                    prop_assert_eq!(limit.take(&mut early, now + wait - 1, 1), 0);
                }
                let count = limit.take(&mut word, now, wanted);
                prop_assert_eq!(count, free.min(wanted));
                taken.push((now, u64::from(count)));
            }
            for (i, (from, _)) in taken.iter().enumerate() {
                for (j, (to, _)) in taken.iter().enumerate().skip(i) {
                    let count: u64 = taken[i..=j].iter().map(|(_, count)| count).sum();
                    prop_assert!(count <= u64::from(burst) + (to - from) / each);
                }
            }
        }
    }
}
