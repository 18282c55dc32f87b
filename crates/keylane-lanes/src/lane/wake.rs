//! The time of something in a lane has come.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{Rules, TICK};
use super::effects::{Due, Effects, Left, Out};
use super::state::{State, Timer, WaitReason};
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
            Due::Backoff(until) => self.backoff_due(until, now, effects),
            Due::Wait(until) => self.wait_due(until, now, effects),
            Due::Expiry(at) => self.expiry_due(at, now, rules, effects),
            Due::Gap(since) => self.gap_due(since, now, rules, spares, effects),
        }
    }

    fn backoff_due(&mut self, armed: Instant, now: Instant, effects: &mut Effects<T, H, G>) {
        let is_paused = self.is_paused();
        let State::Backoff { until, timer, .. } = &mut self.state else {
            effects.stale = true;
            return;
        };
        if *until != armed {
            effects.stale = true;
        } else if armed > now + TICK {
            // The wheel has a longest wait; this head waits longer.
            effects.wake = Some(Due::Backoff(armed));
        } else if is_paused {
            // `resume` lets it go.
            *timer = Timer::Fired;
        } else {
            let head = self.due();
            effects.out = Out::Head {
                head,
                restarts: false,
                // The router has counted it, against the budget.
                counts: false,
            };
        }
    }

    fn wait_due(&mut self, armed: Instant, now: Instant, effects: &mut Effects<T, H, G>) {
        match self.state {
            State::Waiting {
                until: Some(until), ..
            } if until == armed => {
                if until > now + TICK {
                    effects.wake = Some(Due::Wait(until));
                } else {
                    self.schedule(effects);
                }
            }
            _ => {}
        }
    }

    fn expiry_due(
        &mut self,
        armed: u64,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        match &mut self.parked {
            Some(parked) if parked.expiry == Some(armed) => parked.expiry = None,
            _ => return,
        }
        if armed > rules.stamp(now + TICK) {
            return self.arm_expiry(armed, effects);
        }
        let moment = rules.stamp(now).max(armed);
        for expired in self.extract(|parked| parked.is_expired(moment)) {
            effects.left.push((expired, Left::Expired));
        }
        self.open_gate(self.depth(rules), rules, effects);
        let next = self.parked().filter_map(Item::expires_at).min();
        if let Some(at) = next {
            self.arm_expiry(at, effects);
        }
        // A waiting lane may have waited for what is gone now: it is asked again.
        let is_asked = match self.wait_reason() {
            Some(WaitReason::Delay) => true,
            Some(WaitReason::Rate | WaitReason::Linger | WaitReason::Lease) => {
                self.parked_len() == 0
            }
            _ => false,
        };
        if is_asked && !effects.left.is_empty() {
            self.schedule(effects);
        }
        effects.holds = matches!(self.state, State::Waiting { .. });
    }

    /// Takes out every parked message that is chosen, in order.
    pub(super) fn extract(&mut self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let Some(parked) = self.parked.as_mut() else {
            return Vec::new();
        };
        let mut out = Vec::new();
        if parked.iter().any(&mut chosen) {
            for _ in 0..parked.len() {
                match parked.pop_front() {
                    Some(item) if chosen(&item) => out.push(item),
                    Some(item) => parked.push_back(item),
                    None => break,
                }
            }
        }
        out
    }
}
