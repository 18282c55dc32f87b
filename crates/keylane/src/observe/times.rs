//! How long messages wait and attempts last, measured while something asks for it.

use std::sync::OnceLock;
// Not through the seam `rt`: nothing is decided by it, and the model checker need not look.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_rt::clock::{self, Instant};
use keylane_rt::{Arc, Mutex, lock};

/// Buckets of each power of two: a quantile is at most a sixteenth off.
const PARTS: usize = 8;
const BUCKETS: usize = (64 - 2) * PARTS;

/// The mask of a stamp that no message has: nothing is measured.
const OFF: u64 = u64::MAX;

/// Of how many messages one is measured, until it is known how many there are.
const FIRST_SHARE: u64 = 64;

/// Most measurements in a second, about.
const MOST_PER_SECOND: f64 = 4_000.0;

/// Of how many messages one is measured at least.
const LEAST_SHARE: u64 = 1 << 16;

/// The measurements of one dispatcher.
///
/// A message is measured if its stamp has no bit of the mask. Stamps grow by one or by the time, so
/// their lowest bits are spread evenly. While nothing asks, a start costs a relaxed load.
#[derive(Debug)]
pub(crate) struct Timekeeper {
    mask: AtomicU64,
    tables: OnceLock<Box<Tables>>,
    users: Mutex<usize>,
}

#[derive(Debug)]
struct Tables {
    wait: Box<[AtomicU64]>,
    attempt: Box<[AtomicU64]>,
}

impl Default for Timekeeper {
    fn default() -> Self {
        Self {
            mask: AtomicU64::new(OFF),
            tables: OnceLock::new(),
            users: Mutex::new(0),
        }
    }
}

impl Timekeeper {
    /// Whether the message with this stamp is measured.
    #[inline]
    pub(crate) fn measures(&self, stamp: u64) -> bool {
        stamp & self.mask.load(Ordering::Relaxed) == 0
    }

    /// The first attempt of a message starts.
    pub(crate) fn waited(&self, wait: Duration) {
        self.count(wait, |tables| &tables.wait);
    }

    /// An attempt that began at this time is over.
    pub(crate) fn attempted(&self, began: Instant) {
        let lasted = clock::now().saturating_duration_since(began);
        self.count(lasted, |tables| &tables.attempt);
    }

    fn count(&self, time: Duration, of: impl Fn(&Tables) -> &[AtomicU64]) {
        let mask = self.mask.load(Ordering::Relaxed);
        if let Some(tables) = self.tables.get()
            && mask != OFF
        {
            // It stands for the ones that are not measured.
            of(tables)[bucket(time)].fetch_add(mask + 1, Ordering::Relaxed);
        }
    }

    fn now(&self) -> Times {
        let counts = |of: fn(&Tables) -> &[AtomicU64]| {
            let buckets = self.tables.get().into_iter().flat_map(|tables| of(tables));
            Spread(buckets.map(|count| count.load(Ordering::Relaxed)).collect())
        };
        Times {
            wait: counts(|tables| &tables.wait),
            attempt: counts(|tables| &tables.attempt),
        }
    }

    pub(crate) fn measure(self: &Arc<Self>) -> Measuring {
        let zeroes = || std::iter::repeat_with(|| AtomicU64::new(0)).take(BUCKETS);
        self.tables.get_or_init(|| {
            Box::new(Tables {
                wait: zeroes().collect(),
                attempt: zeroes().collect(),
            })
        });
        let mut users = lock(&self.users);
        *users += 1;
        if *users == 1 {
            self.mask.store(FIRST_SHARE - 1, Ordering::Relaxed);
        }
        drop(users);
        Measuring {
            last: self.now(),
            taken: clock::now(),
            of: Arc::clone(self),
        }
    }

    fn leave(&self) {
        let mut users = lock(&self.users);
        *users -= 1;
        if *users == 0 {
            self.mask.store(OFF, Ordering::Relaxed);
        }
    }
}

/// Measures the times of a dispatcher while it lives: see
/// [`Dispatcher::measure`](crate::Dispatcher::measure).
#[derive(Debug)]
#[must_use = "the measuring ends when it is dropped"]
pub struct Measuring {
    of: Arc<Timekeeper>,
    last: Times,
    taken: Instant,
}

impl Measuring {
    /// Returns what was measured since the last call, or since the start. Call it about once a
    /// second: it also decides of how many messages one is measured from now on.
    pub fn take(&mut self) -> Times {
        let (now, at) = (self.of.now(), clock::now());
        let times = Times {
            wait: now.wait.since(&self.last.wait),
            attempt: now.attempt.since(&self.last.attempt),
        };
        let seconds = at.saturating_duration_since(self.taken).as_secs_f64();
        let share = share_of(times.attempt.count(), seconds);
        // Another one may have left meanwhile.
        if self.of.mask.load(Ordering::Relaxed) != OFF {
            self.of.mask.store(share - 1, Ordering::Relaxed);
        }
        (self.last, self.taken) = (now, at);
        times
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.of.leave();
    }
}

/// Of how many messages one is measured, if so many came in this time: a power of two.
fn share_of(messages: u64, seconds: f64) -> u64 {
    let per_second = messages as f64 / seconds.max(0.001);
    let share = (per_second / MOST_PER_SECOND).ceil() as u64;
    share.clamp(1, LEAST_SHARE).next_power_of_two()
}

/// Times of the messages of one dispatcher.
///
/// Of many messages a share is measured, and stands for the others.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the acceptance of a message to the start of its first attempt.
    pub wait: Spread,
    /// The duration of an attempt, whether it succeeded or failed.
    pub attempt: Spread,
}

impl Times {
    /// Adds what was measured at another time.
    pub fn add(&mut self, other: &Self) {
        self.wait.add(&other.wait);
        self.attempt.add(&other.attempt);
    }
}

/// How a time is spread: a histogram with eight buckets for each power of two.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use keylane::Dispatcher;
///
/// let orders = Dispatcher::builder(|order: &u64| *order)
///     .spawn(|_: u64| async { Ok::<(), std::io::Error>(()) })?;
/// let mut measuring = orders.measure();
/// measuring.take(); // there are few messages: from now on each one is measured
/// orders.submit(7).await?.await?;
/// let times = measuring.take();
/// assert!(times.attempt.quantile(0.99) < Some(Duration::from_secs(60)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread(Vec<u64>);

impl Spread {
    /// Returns the number of messages, as estimated from the share that was measured.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the time that this share of the messages did not exceed, at most a sixteenth off:
    /// 0.5 is the median. `None` if nothing was measured.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all = self.count();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        let bucket = self.0.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.map(middle)
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    fn since(&self, before: &Self) -> Self {
        let before = before.0.iter().copied().chain(std::iter::repeat(0));
        let counts = self.0.iter().zip(before);
        Self(
            counts
                .map(|(now, before)| now.saturating_sub(before))
                .collect(),
        )
    }
}

fn bucket(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match nanos.checked_ilog2() {
        Some(power) if power >= 3 => {
            let part = (nanos >> (power - 3)) as usize & (PARTS - 1);
            (power as usize - 2) * PARTS + part
        }
        _ => nanos as usize,
    }
}

fn middle(bucket: usize) -> Duration {
    if bucket < 2 * PARTS {
        return Duration::from_nanos(bucket as u64);
    }
    let width = 1_u64 << (bucket / PARTS - 1);
    let from = (PARTS + bucket % PARTS) as u64 * width;
    Duration::from_nanos(from + width / 2)
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_sixteenth_off() {
        for power in 0..63 {
            let from = 1_u64 << power;
            for nanos in [from, from + from / 8 * 5, from + (from - 1)] {
                let shown = middle(bucket(Duration::from_nanos(nanos))).as_nanos() as f64;
                let off = (shown - nanos as f64).abs() / nanos as f64;
                assert!(off <= 1.0 / 16.0, "{nanos} is shown as {shown}");
            }
        }
        assert!(bucket(Duration::MAX) < BUCKETS);
        let mut spread = Spread(vec![0; BUCKETS]);
        assert_eq!(spread.quantile(0.5), None);
        for ms in 1..=100 {
            spread.0[bucket(Duration::from_millis(ms))] += 1;
        }
        for (share, ms) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let shown = spread.quantile(share).unwrap().as_secs_f64() * 1_000.0;
            assert!((shown - ms).abs() <= ms / 16.0, "{share}: {shown} ms");
        }
    }

    #[test]
    fn nothing_is_measured_while_nothing_asks() {
        let keeper = Arc::new(Timekeeper::default());
        let measured = |keeper: &Timekeeper| (1..10_000).filter(|it| keeper.measures(*it)).count();
        assert_eq!(measured(&keeper), 0);
        let mut first = keeper.measure();
        let second = keeper.measure();
        assert_eq!(measured(&keeper), 10_000 / FIRST_SHARE as usize);
        drop(second);
        keeper.waited(Duration::from_millis(5));
        let times = first.take();
        assert_eq!(
            (times.wait.count(), times.attempt.count()),
            (FIRST_SHARE, 0)
        );
        // Few came, so each one is measured, and counted once.
        assert_eq!(measured(&keeper), 9_999);
        keeper.waited(Duration::from_millis(5));
        assert_eq!(first.take().wait.count(), 1);
        drop(first);
        assert_eq!(measured(&keeper), 0);
    }

    #[test]
    fn of_many_messages_a_share_is_measured() {
        assert_eq!(share_of(0, 1.0), 1);
        assert_eq!(share_of(4_000, 1.0), 1);
        assert_eq!(share_of(1_000_000, 1.0), 256);
        assert_eq!(share_of(u64::MAX, 0.0), LEAST_SHARE);
    }
}
