//! Delays between attempts, and after how many to give up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Failure;

/// A wait that long is as good as for ever, and no timer overflows on it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A policy for retries: how often, and how long after a failure, a message is tried again.
///
/// A retry keeps the order: nothing behind the message starts before it settles. While it waits
/// it holds no runner and no permit, and its lane is not counted as load.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::error::Failure;
/// use keylane::Retry;
///
/// let retry = Retry::exponential(Duration::from_millis(50))
///     .cap(Duration::from_secs(30))
///     .jitter(0.2)
///     .max_attempts(5)
///     .retry_if(|failure: &Failure<std::io::Error>| !matches!(failure, Failure::Panicked(_)));
/// # let _ = retry;
/// ```
pub struct Retry<E> {
    delay: Delay<E>,
    jitter: f64,
    max_attempts: u32,
    retriable: Option<Retriable<E>>,
}

type Retriable<E> = Arc<dyn Fn(&Failure<E>) -> bool + Send + Sync>;
type Custom<E> = Arc<dyn Fn(u32, &Failure<E>) -> Option<Duration> + Send + Sync>;

enum Delay<E> {
    Exponential { base: Duration, cap: Duration },
    Fixed(Duration),
    Custom(Custom<E>),
}

impl<E> Retry<E> {
    /// Waits `base`, then twice as long each time, up to one minute (see [`cap`](Self::cap)).
    ///
    /// The default is five attempts and 20 % jitter.
    pub fn exponential(base: Duration) -> Self {
        Self::new(
            Delay::Exponential {
                base,
                cap: Duration::from_secs(60),
            },
            0.2,
        )
    }

    /// Waits the same time before each attempt. The default is five attempts and no jitter.
    pub fn fixed(delay: Duration) -> Self {
        Self::new(Delay::Fixed(delay), 0.0)
    }

    /// Calls `delay` with the number of the failed attempt, from 1, and its failure. `None` gives
    /// the message up at once.
    ///
    /// By default there is no limit of attempts: the function decides.
    pub fn custom(
        delay: impl Fn(u32, &Failure<E>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self::new(Delay::Custom(Arc::new(delay)), 0.0).max_attempts(u32::MAX)
    }

    fn new(delay: Delay<E>, jitter: f64) -> Self {
        Self {
            delay,
            jitter,
            max_attempts: 5,
            retriable: None,
        }
    }

    /// Sets the longest wait of [`exponential`](Self::exponential). It has no effect on the others.
    #[must_use]
    pub fn cap(mut self, longest: Duration) -> Self {
        if let Delay::Exponential { cap, .. } = &mut self.delay {
            *cap = longest;
        }
        self
    }

    /// Spreads each wait at random between `1 - fraction` and `1` times its length, so that keys
    /// that failed together do not come back together. `fraction` is clamped to 0.0–1.0.
    #[must_use]
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = if fraction.is_nan() {
            0.0
        } else {
            fraction.clamp(0.0, 1.0)
        };
        self
    }

    /// Sets the number of attempts, the first included. 0 counts as 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// Sets which failures are retried. The default is all of them.
    ///
    /// If the function panics, the failure is not retried.
    #[must_use]
    pub fn retry_if(
        mut self,
        retriable: impl Fn(&Failure<E>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.retriable = Some(Arc::new(retriable));
        self
    }

    /// How long to wait after this failed attempt, or `None` to give up.
    ///
    /// `dice` is a random number from 0 to 1.
    pub(crate) fn after(&self, attempt: u32, failure: &Failure<E>, dice: f64) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        if self
            .retriable
            .as_ref()
            .is_some_and(|retriable| !retriable(failure))
        {
            return None;
        }
        let wait = match &self.delay {
            Delay::Fixed(delay) => *delay,
            Delay::Custom(delay) => delay(attempt, failure)?,
            Delay::Exponential { base, cap } => {
                let factor = 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
                base.checked_mul(factor).unwrap_or(*cap).min(*cap)
            }
        };
        Some(
            wait.min(LONGEST)
                .mul_f64(1.0 - self.jitter * dice.clamp(0.0, 1.0)),
        )
    }
}

impl<E> fmt::Debug for Retry<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = match &self.delay {
            Delay::Exponential { base, cap } => format!("exponential from {base:?} to {cap:?}"),
            Delay::Fixed(delay) => format!("fixed {delay:?}"),
            Delay::Custom(_) => "custom".to_owned(),
        };
        f.debug_struct("Retry")
            .field("delay", &delay)
            .field("jitter", &self.jitter)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn failure() -> Failure<()> {
        Failure::Error(())
    }

    #[test]
    fn exponential_doubles_up_to_its_cap() {
        let retry = Retry::exponential(MS)
            .cap(5 * MS)
            .jitter(0.0)
            .max_attempts(6);
        let waits: Vec<_> = (1..=6).map(|n| retry.after(n, &failure(), 0.5)).collect();
        let expected = [
            Some(MS),
            Some(2 * MS),
            Some(4 * MS),
            Some(5 * MS),
            Some(5 * MS),
            None,
        ];
        assert_eq!(waits, expected);
    }

    #[test]
    fn no_attempt_number_overflows() {
        let retry = Retry::exponential(Duration::MAX)
            .cap(Duration::MAX)
            .max_attempts(u32::MAX);
        for attempt in [1, 31, 32, 33, 64, u32::MAX - 1] {
            assert!(
                retry
                    .after(attempt, &failure(), 0.0)
                    .is_some_and(|wait| wait <= LONGEST)
            );
        }
        assert_eq!(retry.after(u32::MAX, &failure(), 0.0), None);
    }

    #[test]
    fn no_wait_is_longer_than_a_year() {
        let year = Duration::from_secs(31_536_000);
        let retry = Retry::fixed(Duration::MAX);
        assert_eq!(retry.after(1, &failure(), 0.0), Some(year));
        assert_eq!(
            Retry::fixed(year).after(1, &failure(), 0.0),
            Some(year),
            "it is not shortened"
        );
    }

    #[test]
    fn it_shows_its_numbers() {
        let retries = [
            Retry::<()>::exponential(MS).cap(5 * MS),
            Retry::fixed(3 * MS),
            Retry::custom(|_, _| None),
        ];
        let shown = retries.map(|retry| format!("{retry:?}"));
        let expected = [
            r#"Retry { delay: "exponential from 1ms to 5ms", jitter: 0.2, max_attempts: 5, .. }"#,
            r#"Retry { delay: "fixed 3ms", jitter: 0.0, max_attempts: 5, .. }"#,
            r#"Retry { delay: "custom", jitter: 0.0, max_attempts: 4294967295, .. }"#,
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn jitter_only_shortens_and_stays_in_its_range() {
        let retry = Retry::fixed(100 * MS).jitter(0.25);
        assert_eq!(retry.after(1, &failure(), 0.0), Some(100 * MS));
        assert_eq!(retry.after(1, &failure(), 1.0), Some(75 * MS));
        assert_eq!(
            Retry::fixed(MS).jitter(f64::NAN).after(1, &failure(), 1.0),
            Some(MS)
        );
    }

    #[test]
    fn what_is_not_retriable_is_given_up_at_once() {
        let retry = Retry::fixed(MS).retry_if(|failure| matches!(failure, Failure::Error(1)));
        assert_eq!(retry.after(1, &Failure::Error(1), 0.0), Some(MS));
        assert_eq!(retry.after(1, &Failure::Error(2), 0.0), None);
        let custom = Retry::custom(|attempt, _: &Failure<()>| (attempt < 3).then_some(MS));
        assert_eq!(custom.after(2, &failure(), 0.0), Some(MS));
        assert_eq!(custom.after(3, &failure(), 0.0), None);
    }
}
