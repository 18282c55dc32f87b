//! How often a source has failed, and when it is opened again.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::trouble::later;

/// The first pause before a source that failed is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// The failures since the source last was well: it confirmed something, or was idle.
#[derive(Debug)]
pub(super) struct Failures {
    in_a_row: u32,
    longest_pause: Duration,
}

impl Failures {
    pub(super) fn new(longest_pause: Duration) -> Self {
        Self {
            in_a_row: 0,
            longest_pause,
        }
    }

    pub(super) fn any(&self) -> bool {
        self.in_a_row > 0
    }

    /// The source is well.
    pub(super) fn forget(&mut self) {
        self.in_a_row = 0;
    }

    /// One more. Returns when the source is opened again: after a pause that grows with each.
    pub(super) fn open_at(&mut self, now: Instant) -> Instant {
        let factor = 1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX);
        self.in_a_row = self.in_a_row.saturating_add(1);
        later(now, PAUSE.saturating_mul(factor).min(self.longest_pause))
    }
}
