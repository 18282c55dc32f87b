//! Due timers: retries, lanes that wait, delayed messages.

use keylane_lanes::{Due, Effects};
use keylane_rt::clock::Instant;

use super::super::Engine;
use super::super::message::{Accepted, Job, Queued, RetryDue, Returning, WakeUp, Work};
use super::super::outcome::Tally;
use crate::discipline::Delayed;
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Arms a timer, in nanoseconds since the epoch, and wakes the router so that it polls the
    /// wheel.
    #[inline]
    pub(in super::super) fn arm_wake_up(&self, wake_up: WakeUp<T::Key>, at: u64) {
        if self.clocks.wake_ups.arm(wake_up, at) {
            self.shutdown.wake_router();
        }
    }

    /// Arms the timer of a job in backoff, and wakes the router.
    pub(in super::super) fn arm_retry(&self, due: RetryDue<T::Key>, at: Instant) {
        if self.clocks.retries.arm(due, self.clocks.stamp(at)) {
            self.shutdown.wake_router();
        }
    }

    /// Keeps a message until its start time, if that is in the future and other messages may pass
    /// it. The message is stalled meanwhile. A message without a key may always be passed.
    pub(super) fn set_aside(
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
            until = until.min(self.rules.moment(expires_at, now));
            if until <= now {
                return Some(accepted);
            }
        }
        self.place_later(accepted, accepted_at, until);
        None
    }

    /// Has the router place a message at this time. It is stalled meanwhile.
    pub(in super::super) fn place_later(
        &self,
        mut accepted: Accepted<T>,
        accepted_at: u64,
        until: Instant,
    ) {
        self.room.stall_outside(&mut accepted.obligation);
        if let Some(at) = self.clocks.later.insert(accepted, accepted_at, until) {
            self.arm_wake_up(WakeUp::Later(at), self.clocks.stamp(at));
        }
    }

    /// Handles a due timer. Delayed messages come back to be placed.
    pub(super) fn wake_up(
        &self,
        tally: &mut Tally,
        wake_up: WakeUp<T::Key>,
        now: Instant,
        jobs: &mut Vec<Queued<T>>,
        returning: &mut Vec<Returning<T>>,
    ) {
        match wake_up {
            WakeUp::Later(at) => {
                if let Some(next) = self.clocks.later.take_due(at, now, returning) {
                    self.arm_wake_up(WakeUp::Later(next), self.clocks.stamp(next));
                }
            }
            WakeUp::Forget => self.forget_rates(now),
            WakeUp::Lane { key, hash, due } => {
                let mut effects = Effects::new();
                let found = self.step(&key, hash, now, &mut effects, |lane, effects| {
                    lane.wake(due, now, &self.rules, self.lanes.spares(), effects);
                });
                if found {
                    let out = self.apply(tally, key, hash, &mut effects, jobs);
                    jobs.extend(out);
                }
            }
        }
    }

    /// Handles the timer of a job in backoff. Returns the job, if it still waits.
    pub(super) fn retry_due(&self, due: RetryDue<T::Key>, now: Instant) -> Option<Queued<T>> {
        match due {
            RetryDue::Laneless(number) => {
                let held = self.clocks.laneless.take(number)?;
                Some(Job::again(None, 0, held).into())
            }
            RetryDue::Lane { key, hash, until } => {
                let mut effects = Effects::new();
                let found = self.step(&key, hash, now, &mut effects, |lane, effects| {
                    let due = Due::Backoff(until);
                    lane.wake(due, now, &self.rules, self.lanes.spares(), effects);
                });
                if !found {
                    self.clocks.drop_outdated();
                    return None;
                }
                if std::mem::take(&mut effects.stale) {
                    // An operator has let it out before.
                    self.clocks.drop_outdated();
                }
                self.follow(key, hash, &mut effects)
            }
        }
    }

    /// Whether a due timer starts a retry now. False for a dead letter, and for a paused lane.
    pub(super) fn is_retry(&self, due: &RetryDue<T::Key>) -> bool {
        match due {
            RetryDue::Laneless(number) => {
                let is_attempt = |work: &Work<T>| work.is_attempt();
                let peeked = self
                    .clocks
                    .laneless
                    .peek(*number, |held| is_attempt(&held.work));
                peeked.unwrap_or(false)
            }
            RetryDue::Lane { key, hash, until } => self
                .lanes
                .peek(*hash, key, |lane| {
                    let head = lane.state().head();
                    lane.state().backs_off_until() == Some(*until)
                        && !lane.is_paused()
                        && head.is_some_and(|head| head.work.is_attempt())
                })
                .unwrap_or(false),
        }
    }

    /// Clears all timers, and hands back the messages that wait for them outside of lanes.
    pub(super) fn clear_clocks(&self) {
        self.clocks.retries.clear();
        self.clocks.wake_ups.clear();
        let mut tally = Tally::default();
        for held in self.clocks.laneless.take_all() {
            self.hand_back_held(&mut tally, None, held);
        }
        for (accepted_at, accepted) in self.clocks.later.take_all() {
            self.hand_back_accepted(&mut tally, accepted, accepted_at);
        }
        self.flush(&mut tally);
    }
}
