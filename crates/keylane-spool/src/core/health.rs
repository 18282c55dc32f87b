//! The health of the sink, or of the dead letters: one value for each.

use std::sync::Arc;

use tokio::time::Instant;

use super::fault::Fault;
use super::moment::Moment;
use crate::backoff::Backoff;

/// A change of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Failing,
    StillFailing,
    Recovered,
}

#[derive(Debug)]
pub(super) struct Health {
    backoff: Backoff,
    retry_at: Option<Instant>,
    failing: Option<Fault<Arc<str>>>,
}

impl Health {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            retry_at: None,
            failing: None,
        }
    }

    /// Ends a wait that is over.
    pub(super) fn look(&mut self, now: Instant) {
        self.retry_at = self.retry_at.filter(|at| *at > now);
    }

    /// Returns until when nothing is sent.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns the failures since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Returns since when and why it fails, and how often it has failed since.
    pub(super) fn failing(&self) -> Option<(Fault<Arc<str>>, u32)> {
        let failing = self.failing.clone()?;
        Some((failing, self.failures()))
    }

    pub(super) fn works(&mut self) -> Change {
        self.backoff.succeeded();
        self.retry_at = None;
        match self.failing.take() {
            Some(_) => Change::Recovered,
            None => Change::None,
        }
    }

    /// Counts a failure. With some success the waits start anew.
    pub(super) fn fails(&mut self, error: Arc<str>, has_written: bool, at: Moment) -> Change {
        if has_written {
            self.backoff.succeeded();
        }
        self.retry_at = at.now.checked_add(self.backoff.failed(at.dice));
        match &mut self.failing {
            Some(failing) => {
                failing.error = error;
                Change::StillFailing
            }
            None => {
                self.failing = Some(Fault {
                    since: at.wall,
                    error,
                });
                Change::Failing
            }
        }
    }
}
