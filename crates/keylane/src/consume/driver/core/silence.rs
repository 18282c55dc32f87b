//! For how long a source has been silent.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::trouble::later;

/// Counts only the time in which the source could speak: not while another call of it runs, or the
/// driver is busy.
#[derive(Debug)]
pub(super) struct Silence {
    /// When the source last spoke. Later by the time in which it could not.
    heard_at: Instant,
    /// Since when it cannot.
    busy_since: Instant,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard_at: now,
            busy_since: now,
        }
    }

    /// The source has spoken.
    pub(super) fn end(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The source is not listened to from now on.
    pub(super) fn pause(&mut self, now: Instant) {
        self.busy_since = now;
    }

    /// The source is listened to again.
    pub(super) fn resume(&mut self, now: Instant) {
        let busy = now.saturating_duration_since(self.busy_since);
        self.heard_at = later(self.heard_at, busy).min(now);
    }

    /// When it will have lasted so long.
    pub(super) fn lasts(&self, time: Duration) -> Instant {
        later(self.heard_at, time)
    }

    pub(super) fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard_at)
    }
}
