//! Due timers: retries, lanes that wait, delayed messages.

use keylane_lanes::{Due, Effects};
use keylane_rt::clock::Instant;

use super::Decisions;
use crate::engine::message::{Job, Queued, RetryDue, Returning, WakeUp, Work};
use crate::engine::settlement::Tally;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Handles a due timer. Delayed messages come back to be placed.
    pub(crate) fn wake_up(
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
                    self.clocks
                        .arm_wake_up(WakeUp::Later(next), self.clocks.stamp(next));
                }
            }
            WakeUp::Forget => self.table.forget_rates(now),
            WakeUp::Lane { key, hash, due } => {
                let mut effects = Effects::new();
                let found = self
                    .table
                    .step(&key, hash, now, &mut effects, |lane, effects| {
                        lane.wake(
                            due,
                            now,
                            &self.table.rules,
                            self.table.lanes.spares(),
                            effects,
                        );
                    });
                if found {
                    let out = self.apply(tally, key, hash, &mut effects, jobs);
                    jobs.extend(out);
                }
            }
        }
    }

    /// Handles the timer of a job in backoff. Returns the job, if it still waits.
    pub(crate) fn retry_due(&self, due: RetryDue<T::Key>, now: Instant) -> Option<Queued<T>> {
        match due {
            RetryDue::Laneless(number) => {
                let held = self.clocks.laneless.take(number)?;
                Some(Job::again(None, 0, held).into())
            }
            RetryDue::Lane { key, hash, until } => {
                let mut effects = Effects::new();
                let found = self
                    .table
                    .step(&key, hash, now, &mut effects, |lane, effects| {
                        let due = Due::Backoff(until);
                        lane.wake(
                            due,
                            now,
                            &self.table.rules,
                            self.table.lanes.spares(),
                            effects,
                        );
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
    pub(crate) fn is_retry(&self, due: &RetryDue<T::Key>) -> bool {
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
                .table
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
    pub(crate) fn clear_clocks(&self) {
        self.clocks.retries.clear();
        self.clocks.wake_ups.clear();
        let mut tally = Tally::default();
        for held in self.clocks.laneless.take_all() {
            self.table.hand_back_held(&mut tally, None, held);
        }
        for (accepted_at, accepted) in self.clocks.later.take_all() {
            self.settlement
                .hand_back_accepted(&mut tally, accepted, accepted_at);
        }
        self.settlement.flush(&mut tally);
    }
}
