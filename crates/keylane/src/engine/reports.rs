//! Errors that come by the thousand, and are logged now and then.

use std::time::Duration;

use keylane_rt::clock::Instant;

/// Errors are reported no more often, for all keys together.
const REPORTED_EVERY: Duration = Duration::from_secs(10);

/// When errors were last reported.
#[derive(Default)]
pub(crate) struct Reports {
    last: Option<Instant>,
    /// Errors since then.
    missed: u64,
}

impl Reports {
    /// How many there were since the last report, if this one is to be reported.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + REPORTED_EVERY) {
            self.missed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.missed))
    }
}
