//! Heads that wait: in their lanes, or beside them.

use std::time::Duration;

use keylane_lanes::{Effects, Hold};
use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::{caught, cloned};

use super::Decisions;
use crate::engine::message::{Held, Queued, RetryDue};
use crate::engine::room::Freed;
use crate::engine::settlement::Tally;
use crate::observe::hot_keys::Stop;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Parks a failed job until its next attempt. The messages behind it are stalled from now on.
    pub(crate) fn back_off(
        &self,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        held: Held<T>,
        wait: Duration,
    ) -> Option<Queued<T>> {
        if self.shutdown.hands_back() {
            self.table
                .hand_back_held(tally, key.as_ref().and_then(cloned), held);
            self.table.release_handing_back(tally, key, hash);
            return None;
        }
        // The tally must return its room before the job waits.
        self.settlement.flush(tally);
        let now = clock::now();
        let until = now.checked_add(wait).unwrap_or(now);
        let Some(key) = key else {
            self.hold_laneless(tally, held, Some(until));
            return None;
        };
        self.hold_head(tally, key, hash, held, Hold::Retry(until))
    }

    /// Holds a message without a lane until its retry is due; without one, until its generation or
    /// the intake ends. It does not count against the capacity meanwhile.
    pub(crate) fn hold_laneless(
        &self,
        tally: &mut Tally,
        mut held: Held<T>,
        retry_at: Option<Instant>,
    ) {
        self.settlement.flush(tally);
        let mut freed = Freed::default();
        self.table
            .room
            .stall_obligation(&mut held.envelope.obligation, &mut freed);
        let number = self.clocks.laneless.insert(held);
        self.table.room.free(freed);
        let ends = match retry_at {
            Some(until) => {
                self.clocks.arm_retry(RetryDue::Laneless(number), until);
                self.shutdown.hands_back()
            }
            None => self.shutdown.hands_back() || self.shutdown.has_intake_ended(),
        };
        // Each of these may have come meanwhile, and looked for what is held before it was here.
        let is_revoked = |held: &Held<T>| self.sources.is_revoked(&held.envelope.obligation);
        if (ends || self.clocks.laneless.peek(number, is_revoked) == Some(true))
            && let Some(held) = self.clocks.laneless.take(number)
        {
            self.table.hand_back_held(tally, None, held);
            self.settlement.flush(tally);
        }
        self.shutdown.wake_router();
    }

    /// Gives a job back to its lane. If the key's own `Eq` or `Clone` panics there, the message is
    /// handed back and the dispatcher aborts.
    pub(crate) fn hold_head(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        held: Held<T>,
        hold: Hold,
    ) -> Option<Queued<T>> {
        self.table.note_stalled(hash, held.envelope.accepted_at);
        let of_source = held.envelope.obligation.source().and_then(|_| cloned(&key));
        let mut held = Some(Box::new(held));
        let mut effects = Effects::new();
        let tried = caught(|| {
            self.table
                .step(&key, hash, clock::now(), &mut effects, |lane, effects| {
                    if let Some(held) = held.take() {
                        lane.hold(held, hold, effects);
                    }
                })
        });
        match (tried, held) {
            (Ok(true), None) => {
                if matches!(hold, Hold::Halt) {
                    // After the step: a query that looked before it would have dropped the lane.
                    self.probe.hot_keys.stopped(Stop::Halted, hash);
                }
                let queued = self.apply_quiet(tally, key, hash, &mut effects);
                let swept = of_source.and_then(|key| self.sweep_head(tally, key, hash));
                self.settlement.flush(tally);
                // A lane that is out has no head to sweep.
                queued.or(swept)
            }
            (_, held) => {
                self.settlement.count_lost_messages();
                if let Some(held) = held {
                    self.table.hand_back_held(tally, cloned(&key), *held);
                }
                self.settlement.flush(tally);
                None
            }
        }
    }
}
