//! Where runners leave their samples.

use std::num::NonZeroU64;
use std::time::Duration;

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::clock::{self, Instant};
use keylane_rt::{Mutex, lock};

use super::window::Sample;
use super::{Adaptive, Controller};

/// Measures attempts. There is one only where the limit is adaptive.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Attempts that have started and not ended. A statistic: nothing is ordered by it.
    in_flight: AtomicUsize,
    /// Windows that have closed, for samples to say when they started. A statistic as well.
    round: AtomicUsize,
    course: Mutex<Course>,
    epoch: Instant,
}

#[derive(Debug)]
struct Course {
    controller: Controller,
    /// How many limits it has decided on.
    number: u64,
}

/// An attempt that has started. Small: there is one for each handler in flight.
#[derive(Debug)]
pub(crate) struct Started {
    /// Nanoseconds from the epoch, and one.
    at: NonZeroU64,
    in_flight: u32,
    round: u32,
}

/// A limit to hold from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) limit: usize,
    /// Later limits have higher numbers.
    pub(crate) number: u64,
}

impl Meter {
    pub(crate) fn new(settings: Adaptive, epoch: Instant) -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            course: Mutex::new(Course {
                controller: Controller::new(settings),
                number: 0,
            }),
            epoch,
        }
    }

    pub(crate) fn start(&self, now: Instant) -> Started {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let in_flight = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1);
        let at = NonZeroU64::MIN.saturating_add(self.nanos(now));
        Started {
            at,
            in_flight,
            round: self.round.load(Ordering::Relaxed) as u32,
        }
    }

    /// The attempt has ended, in a way that tells something or not. Returns a limit if it was the
    /// last one of a window.
    ///
    /// An attempt that is dropped by an abort never comes here: no limit matters any more.
    pub(crate) fn end(&self, started: &Started, now: Instant, ended: Ended) -> Option<Decided> {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let timed_out = match ended {
            Ended::Answered => false,
            Ended::TimedOut => true,
            Ended::Failed => return None,
        };
        let latency = self.nanos(now).saturating_sub(started.at.get() - 1);
        let sample = Sample {
            latency: Duration::from_nanos(latency),
            in_flight: started.in_flight as usize,
            timed_out,
            round: started.round,
        };
        let mut course = lock(&self.course);
        let limit = course.controller.record(sample)?;
        let round = course.controller.round();
        self.round.store(round as usize, Ordering::Relaxed);
        course.number += 1;
        let number = course.number;
        Some(Decided { limit, number })
    }

    fn nanos(&self, now: Instant) -> u64 {
        clock::nanos_since(self.epoch, now)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered,
    TimedOut,
    Failed,
}
