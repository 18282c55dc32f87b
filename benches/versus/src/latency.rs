//! How long answers take.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latency in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half were faster.
    pub p50: u64,
    /// 99 of 100 were faster.
    pub p99: u64,
    /// 999 of 1,000 were faster.
    pub p999: u64,
}

/// Questions and when they were answered.
#[derive(Debug)]
pub struct Asked {
    /// Questions answered after the first round over the keys.
    pub answers: u64,
    /// How long they took together.
    pub elapsed: Duration,
    /// How long each took.
    pub histogram: Histogram<u64>,
    last: Instant,
    warm_up: u64,
}

impl Asked {
    /// The keys asked in turn.
    pub const KEYS: u64 = 1_000;

    /// Nothing asked; a first round over the keys does not count.
    #[allow(clippy::new_without_default, reason = "the clock runs from here")]
    pub fn new() -> Self {
        Self {
            answers: 0,
            elapsed: Duration::ZERO,
            last: Instant::now(),
            warm_up: Self::KEYS,
            histogram: histogram(),
        }
    }

    /// The question asked last is answered, and the next one asked at once.
    #[inline]
    pub fn answered(&mut self) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        self.answers += 1;
        self.elapsed += took;
        self.histogram.saturating_record(took.as_nanos() as u64);
    }
}

impl Latency {
    /// Reads them off.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
        }
    }
}

/// From a nanosecond to a minute.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are a minute apart")
}
