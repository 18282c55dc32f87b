//! Percentiles of the last seconds, measured while there is a viewer.

use std::collections::VecDeque;
use std::time::Duration;

use keylane::watching::{Measuring, Spread, Times};
use serde::Serialize;

/// Looks that the percentiles are of: one a second.
const LOOKS: usize = 10;

/// What was measured in the last looks.
#[derive(Debug, Default)]
pub(crate) struct Window {
    measuring: Option<Measuring>,
    last: VecDeque<Times>,
}

/// Percentiles, in microseconds; `None` if nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    /// From the acceptance of a message to its first attempt.
    pub(crate) wait: Option<Quantiles>,
    /// Of the attempts.
    pub(crate) attempt: Option<Quantiles>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_us: u64,
    pub(crate) p90_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) most_us: u64,
}

impl Window {
    /// A look: what was measured since the last one comes in.
    pub(crate) fn look(&mut self, measure: impl FnOnce() -> Measuring) -> Percentiles {
        let times = self.measuring.get_or_insert_with(measure).take();
        if self.last.len() == LOOKS {
            self.last.pop_front();
        }
        self.last.push_back(times);
        let mut all = Times::default();
        for times in &self.last {
            all.add(times);
        }
        Percentiles {
            wait: quantiles(&all.wait),
            attempt: quantiles(&all.attempt),
        }
    }

    /// There is no viewer: nothing is measured.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }
}

fn quantiles(spread: &Spread) -> Option<Quantiles> {
    let us = |share| spread.quantile(share).map(micros);
    Some(Quantiles {
        p50_us: us(0.5)?,
        p90_us: us(0.9)?,
        p99_us: us(0.99)?,
        most_us: us(1.0)?,
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
