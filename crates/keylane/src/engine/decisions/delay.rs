//! Messages that are placed later.

use keylane_rt::clock::Instant;

use super::Decisions;
use crate::discipline::Delayed;
use crate::engine::message::{Accepted, WakeUp};
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Keeps a message until its start time, if that is in the future and other messages may pass
    /// it. The message is stalled meanwhile. A message without a key may always be passed.
    pub(crate) fn set_aside(
        &self,
        accepted: Accepted<T>,
        accepted_at: u64,
        now: Instant,
    ) -> Option<Accepted<T>> {
        if self.settings.delayed == Delayed::Wait && accepted.key.is_some() {
            return Some(accepted);
        }
        let Some(mut until) = accepted.obligation.not_before(now) else {
            return Some(accepted);
        };
        if let Some(expires_at) = accepted.obligation.expires_at() {
            // Expired by then, it settles when it expires.
            until = until.min(self.table.rules.moment(expires_at, now));
            if until <= now {
                return Some(accepted);
            }
        }
        self.place_later(accepted, accepted_at, until);
        None
    }

    /// Has the router place a message at this time. It is stalled meanwhile.
    pub(crate) fn place_later(&self, mut accepted: Accepted<T>, accepted_at: u64, until: Instant) {
        self.table.room.stall_outside(&mut accepted.obligation);
        if let Some(at) = self.clocks.later.insert(accepted, accepted_at, until) {
            self.clocks
                .arm_wake_up(WakeUp::Later(at), self.clocks.stamp(at));
        }
    }
}
