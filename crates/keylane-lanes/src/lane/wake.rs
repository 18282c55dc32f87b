//! The time of something in a lane has come.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{Rules, TICK};
use super::effects::{Due, Effects, Left};
use super::state::WaitReason;
use super::{Lane, Spares};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Handles a timer that went off.
    pub fn wake(
        &mut self,
        due: Due,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        match due {
            Due::Backoff(until) => {
                self.state
                    .backoff_due(until, now, self.more.is_paused(), effects);
            }
            Due::Wait(until) if !self.state.waits_until(until) => {}
            Due::Wait(until) if until > now + TICK => effects.wake = Some(due),
            Due::Wait(_) => self.schedule(effects),
            Due::Expiry(at) => self.expiry_due(at, now, rules, effects),
            Due::Gap(since) => self.gap_due(since, now, rules, spares, effects),
        }
    }

    fn expiry_due(
        &mut self,
        armed: u64,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        if !self.parked.take_expiry(armed) {
            return;
        }
        if armed > rules.stamp(now + TICK) {
            return self.parked.arm_expiry(Some(armed), effects);
        }
        let moment = rules.stamp(now).max(armed);
        for expired in self.parked.extract(|parked| parked.is_expired(moment)) {
            effects.left.push((expired, Left::Expired));
        }
        self.more.open_gate(self.depth(rules), rules, effects);
        let next = self.parked.iter().filter_map(Item::expires_at).min();
        self.parked.arm_expiry(next, effects);
        // A waiting lane may have waited for what is gone now: it is asked again.
        let is_asked = match self.state.wait_reason() {
            Some(WaitReason::Delay) => true,
            Some(WaitReason::Rate | WaitReason::Linger | WaitReason::Lease) => {
                self.parked.is_empty()
            }
            _ => false,
        };
        if is_asked && !effects.left.is_empty() {
            self.schedule(effects);
        }
        effects.holds = self.state.wait_reason().is_some();
    }
}
