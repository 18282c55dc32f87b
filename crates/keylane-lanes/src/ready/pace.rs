//! The rate of all jobs together.

use std::time::Duration;

use keylane_rt::clock::{self, Instant};

use crate::Gcra;

/// Says how often a job may go, and remembers that it has said no.
///
/// A runner that is refused wakes the router, which calls [`release`](Self::release) at the right
/// time. Until then no runner is recruited, but a poller may still ask. If that one is granted, the
/// router must still wake the others.
#[derive(Debug)]
pub(super) struct Pace {
    limiter: Gcra,
    tat: u64,
    epoch: Instant,
    /// When the next job may start. Set while a runner was refused and none was released.
    refused_until: Option<u64>,
}

impl Pace {
    pub(super) fn new(limiter: Gcra) -> Self {
        Self {
            limiter,
            tat: 0,
            epoch: clock::now(),
            refused_until: None,
        }
    }

    /// Lets one go now, or not.
    pub(super) fn allows(&mut self) -> bool {
        let now = clock::nanos_since(self.epoch, clock::now());
        let answer = self.limiter.ask(&mut self.tat, now);
        self.refused_until = answer.err().or(self.refused_until);
        answer.is_ok()
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.refused_until.is_some()
    }

    /// When to release; `None` also if that is beyond all time.
    pub(super) fn refused_until(&self) -> Option<Instant> {
        let until = Duration::from_nanos(self.refused_until?);
        self.epoch.checked_add(until)
    }

    pub(super) fn release(&mut self) {
        self.refused_until = None;
    }
}
