//! The limit on the retries of all lanes together.

use std::time::Duration;

use keylane_rt::clock::Instant;

/// A limit on retries over all lanes, so that an outage downstream does not cause a storm of
/// retries.
///
/// The allowance grows by [`ratio`](Self::ratio) for each handled message and by
/// [`min_per_second`](Self::min_per_second) with time. A retry that is due while the allowance is
/// used up is *postponed*, and not given up: the failures of another key must not cost this one its
/// attempts, or its order.
///
/// The idea of a ratio with a floor is Finagle's `RetryBudget`; there, a retry without budget
/// fails at once.
///
/// # Examples
///
/// ```
/// use keylane::RetryBudget;
///
/// // One retry for ten messages, and ten a second in any case.
/// let budget = RetryBudget::new().ratio(0.1).min_per_second(10);
/// # let _ = budget;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    ratio: f64,
    min_per_second: u32,
}

impl RetryBudget {
    /// Returns a budget of one retry for five messages, and ten a second.
    pub fn new() -> Self {
        Self {
            ratio: 0.2,
            min_per_second: 10,
        }
    }

    /// Sets how many retries each handled message allows, from 0.0 to 1,000.0.
    #[must_use]
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = if ratio.is_nan() {
            0.0
        } else {
            ratio.clamp(0.0, 1_000.0)
        };
        self
    }

    /// Sets how many retries a second are allowed, whatever is handled. 0 counts as 1: otherwise
    /// retries could wait for ever.
    #[must_use]
    pub fn min_per_second(mut self, retries: u32) -> Self {
        self.min_per_second = retries.max(1);
        self
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// The allowance of a running dispatcher.
#[derive(Debug)]
pub(crate) struct Bucket {
    budget: RetryBudget,
    tokens: f64,
    filled_at: Instant,
    handled: u64,
}

/// Unused allowance fades over about this many seconds.
const MEMORY: f64 = 10.0;

impl Bucket {
    pub(crate) fn new(budget: RetryBudget, now: Instant) -> Self {
        let tokens = f64::from(budget.min_per_second);
        Self {
            budget,
            tokens,
            filled_at: now,
            handled: 0,
        }
    }

    /// Takes one retry, or says how long to wait before asking again.
    ///
    /// `handled` is the number of messages settled since the dispatcher started.
    pub(crate) fn withdraw(&mut self, now: Instant, handled: u64) -> Result<(), Duration> {
        let floor = f64::from(self.budget.min_per_second);
        let elapsed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        let earned = handled.saturating_sub(self.handled) as f64 * self.budget.ratio;
        // Of what came in over a long time only the last part counts, and what was left over
        // fades: a month of traffic does not pay for a storm. One retry is always kept.
        let recent = (MEMORY / elapsed).min(1.0);
        let spare = (self.tokens - 1.0).max(0.0);
        let faded = spare * (elapsed / MEMORY).min(1.0);
        self.tokens += (elapsed * floor + earned) * recent - faded;
        self.filled_at = now;
        self.handled = handled;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // Rounded up to the timer's millisecond, or the same retry would come back too early.
        let wait = ((1.0 - self.tokens) / floor * 1e3).ceil().max(1.0);
        Err(Duration::from_millis(wait as u64))
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    /// How many are granted in a row, of more than any test allows.
    fn granted(bucket: &mut Bucket, now: Instant, handled: u64) -> usize {
        let all = (0..10_000).take_while(|_| bucket.withdraw(now, handled).is_ok());
        all.count()
    }

    #[test]
    fn an_outage_gets_the_floor_and_no_more() {
        let start = keylane_rt::clock::now();
        let mut bucket = Bucket::new(RetryBudget::new().ratio(0.5).min_per_second(10), start);
        let mut granted = 0;
        let mut now = start;
        for _ in 0..10_000 {
            granted += u32::from(bucket.withdraw(now, 0).is_ok());
            now += Duration::from_millis(1);
        }
        // Ten to begin with, then ten a second for ten seconds.
        assert!((105..=111).contains(&granted), "{granted}");
    }

    #[test]
    fn traffic_earns_retries() {
        let start = keylane_rt::clock::now();
        let mut bucket = Bucket::new(RetryBudget::new().ratio(0.5).min_per_second(1), start);
        assert_eq!(granted(&mut bucket, start, 0), 1);
        assert!(bucket.withdraw(start, 1).is_err());
        assert!(bucket.withdraw(start, 2).is_ok());
        assert!(bucket.withdraw(start, 2).is_err());
    }

    #[test]
    fn what_was_earned_lasts_for_a_while_and_not_for_ever() {
        let start = keylane_rt::clock::now();
        let budget = RetryBudget::new().ratio(1.0).min_per_second(1);
        let after = |wait: u64, handled| {
            let mut bucket = Bucket::new(budget, start);
            let mut now = start + Duration::from_secs(1);
            let first = usize::from(bucket.withdraw(now, handled).is_ok());
            now += Duration::from_secs(wait);
            first + granted(&mut bucket, now, handled)
        };
        assert!((1_000..=1_002).contains(&after(0, 1_000)));
        assert!((500..=510).contains(&after(5, 1_000)));
        assert!(after(10, 1_000) <= 12);
        let mut bucket = Bucket::new(budget, start);
        let month = start + Duration::from_secs(30 * 24 * 3600);
        let granted = granted(&mut bucket, month, 30 * 24 * 3600);
        assert!((20..=22).contains(&granted), "ten seconds of it: {granted}");
    }

    #[test]
    fn the_wait_is_for_what_is_missing() {
        let start = keylane_rt::clock::now();
        let mut bucket = Bucket::new(RetryBudget::new().ratio(0.0).min_per_second(4), start);
        assert_eq!(granted(&mut bucket, start, 0), 4);
        let (eighth, quarter) = (Duration::from_millis(125), Duration::from_millis(250));
        assert_eq!(bucket.withdraw(start, 0), Err(quarter));
        assert_eq!(bucket.withdraw(start + eighth, 0), Err(eighth));
    }

    #[test]
    fn the_wait_is_long_enough() {
        let start = keylane_rt::clock::now();
        let mut bucket = Bucket::new(RetryBudget::new().ratio(0.0).min_per_second(7), start);
        let mut now = start;
        let mut refused_in_a_row = 0;
        for _ in 0..1_000 {
            match bucket.withdraw(now, 0) {
                Ok(()) => refused_in_a_row = 0,
                Err(wait) => {
                    refused_in_a_row += 1;
                    assert!(refused_in_a_row < 2, "waited as told, and refused again");
                    now += wait;
                }
            }
        }
    }
}
