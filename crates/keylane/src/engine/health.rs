//! What the health of a dispatcher is decided by.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::Engine;
use super::end::Stage;
use crate::health::{DispatcherView, Health, HealthLimits};
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// For how long there has been no room, with nothing settled.
    pub(super) fn full_for(&self, now: Instant) -> Option<Duration> {
        let is_full = self.room.messages.available_permits() == 0;
        let settled = self.probe.counters.settled();
        self.probe.progress.full(is_full, settled, now)
    }

    /// Whether it works, and why not.
    pub(crate) fn health(&self, limits: &HealthLimits) -> Health {
        let now = self.clocks.now();
        let view = DispatcherView {
            name: self.settings.name.as_deref(),
            is_closed: self.shutdown.stage() > Stage::Open || self.room.messages.is_closed(),
            panicked: self.shutdown.has_panicked(),
            full: self.full_for(now),
            blocked: self.probe.progress.blocked(now),
        };
        view.verdict(limits)
    }
}
