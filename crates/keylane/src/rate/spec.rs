//! A rate, as a user writes it.

use std::time::Duration;

use keylane_lanes::Gcra;

use crate::error::BuildError;

/// A number of starts per period, and how many of them may come at once.
///
/// Starts are spread evenly: `per_second(10)` is one every 100 ms, and not ten at the beginning of
/// each second. Unused starts are saved up to the [`burst`](Self::burst), so in any stretch of time
/// `t` there are at most `burst + rate × t` starts. The time between two starts is rounded up to a
/// whole nanosecond, so the rate is never exceeded.
///
/// Timers have a resolution of a millisecond. So a rate above 500 a second is reached only with a
/// burst. The default burst is what the rate gives in two milliseconds, and 1 for all slower rates.
///
/// The rate is checked when the dispatcher is built, and not here.
///
/// It is the Generic Cell Rate Algorithm of ITU-T Recommendation I.371, in its form of virtual
/// scheduling.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::Rate;
///
/// // A partner allows 100 calls a second, and does not mind 20 at once.
/// let calls = Rate::per_second(100).burst(20);
/// // Three text messages a day, each at least eight hours after the one before.
/// let texts = Rate::per(3, Duration::from_secs(24 * 3600));
/// # let _ = (calls, texts);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    period: Duration,
    burst: Option<u32>,
}

impl Rate {
    /// Returns a rate of this many starts per second.
    pub const fn per_second(count: u32) -> Self {
        Self::per(count, Duration::from_secs(1))
    }

    /// Returns a rate of this many starts per period.
    pub const fn per(count: u32, period: Duration) -> Self {
        Self {
            count,
            period,
            burst: None,
        }
    }

    /// Sets how many may start at once after a time without any. The default is 1, or the starts of
    /// two milliseconds for a faster rate.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Whether the engine can keep this rate.
    ///
    /// # Errors
    ///
    /// `Zero`, if nothing could ever start, or if the period has no length. `TooLarge`, if it is
    /// more than one start per nanosecond, or if saving up the burst takes longer than the engine
    /// counts.
    pub(crate) fn check(&self, setting: &'static str) -> Result<(), BuildError> {
        if self.count == 0 || self.burst == Some(0) || self.period.is_zero() {
            return Err(BuildError::Zero(setting));
        }
        let exact = self.period.as_nanos() / u128::from(self.count) > 0;
        let countable = self.emission() * u128::from(self.at_once()) <= u128::from(LONGEST);
        if exact && countable {
            Ok(())
        } else {
            Err(BuildError::TooLarge(setting))
        }
    }

    /// The limiter that keeps this rate. Of a rate that [`check`](Self::check) refuses it is one
    /// that makes no sense, and no panic.
    pub(crate) fn limiter(&self) -> Gcra {
        let emission = self.emission().clamp(1, u128::from(LONGEST)) as u64;
        Gcra::new(emission, self.at_once())
    }

    /// The burst, as set or as timers need it.
    fn at_once(&self) -> u32 {
        let needed = || TIMERS / self.emission().clamp(1, TIMERS);
        self.burst
            .unwrap_or_else(|| u32::try_from(needed()).unwrap_or(u32::MAX))
    }

    /// Nanoseconds between two starts, rounded up. The product of the longest one and the largest
    /// burst is far from overflowing.
    fn emission(&self) -> u128 {
        self.period
            .as_nanos()
            .div_ceil(u128::from(self.count.max(1)))
    }
}

/// In nanoseconds, how late a timer may be and how long it may take to be set again.
const TIMERS: u128 = 2_000_000;

/// In nanoseconds, about 146 years: so much can be added to a time of that size three times over.
const LONGEST: u64 = u64::MAX / 4;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_could_never_start_is_refused() {
        for rate in [
            Rate::per_second(0),
            Rate::per_second(1).burst(0),
            Rate::per(1, Duration::ZERO),
            Rate::per(0, Duration::ZERO).burst(0),
        ] {
            assert_eq!(
                rate.check("rate"),
                Err(BuildError::Zero("rate")),
                "{rate:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let nano = Duration::from_nanos(1);
        for rate in [
            Rate::per_second(1_000_000_001),
            Rate::per_second(u32::MAX),
            Rate::per(2, nano),
            Rate::per(1, Duration::MAX),
            Rate::per(u32::MAX, Duration::MAX).burst(u32::MAX),
            Rate::per(1, Duration::from_nanos(LONGEST) + nano),
            Rate::per(1, Duration::from_nanos(LONGEST / 2) + nano).burst(2),
        ] {
            let refused = Err(BuildError::TooLarge("rate"));
            assert_eq!(rate.check("rate"), refused, "{rate:?}");
        }
        for rate in [
            Rate::per_second(1_000_000_000).burst(u32::MAX),
            Rate::per(1, nano),
            Rate::per(1, Duration::from_nanos(LONGEST)),
            Rate::per(u32::MAX, 5 * SECOND),
        ] {
            assert_eq!(rate.check("rate"), Ok(()), "{rate:?}");
        }
    }

    #[test]
    fn no_rate_panics() {
        for count in [0, 1, u32::MAX] {
            for period in [Duration::ZERO, SECOND, Duration::MAX] {
                for burst in [0, 1, u32::MAX] {
                    let limiter = Rate::per(count, period).burst(burst).limiter();
                    let mut tat = 0;
                    assert_eq!(limiter.ask(&mut tat, 0), Ok(()), "the first always starts");
                }
            }
        }
    }

    #[test]
    fn a_fast_rate_bursts_by_what_timers_cannot_tell_apart() {
        let at_once = |rate: Rate| rate.at_once();
        let rates = [1, 500, 999, 1_000, 10_000, 1_000_000_000].map(Rate::per_second);
        assert_eq!(rates.map(at_once), [1, 1, 1, 2, 20, 2_000_000]);
        assert_eq!(rates.map(|rate| at_once(rate.burst(3))), [3; 6]);
        assert_eq!(at_once(Rate::per(1, Duration::MAX)), 1);
        assert_eq!(at_once(Rate::per(1, Duration::ZERO)), 2_000_000);
    }

    #[test]
    fn the_interval_is_rounded_up() {
        let limiter = Rate::per_second(3).limiter();
        let mut tat = 0;
        assert_eq!(limiter.ask(&mut tat, 0), Ok(()));
        assert_eq!(limiter.ask(&mut tat, 333_333_333), Err(333_333_334));
    }
}
