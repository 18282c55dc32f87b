//! What happens to a message after a failed attempt, and to the lane behind it.

use std::time::Duration;

use keylane_lanes::Hold;
use keylane_rt::cut;
use keylane_rt::unwind::{caught, cloned};

use super::Failures;
use super::verdict::{Policy, Verdict};
use crate::engine::end::HandedBack;
use crate::engine::message::{Envelope, Held, Job, LONGEST_WHY, Queued, Unsettled, Work, why};
use crate::engine::settlement::{Outcome, Tally};
use crate::error::Failure;
use crate::handler::Context;
use crate::random;
use crate::types::Spec;

/// The first backoff after the dead-letter sink refused. It doubles up to `LONGEST_SINK_WAIT`.
const SINK_WAIT: Duration = Duration::from_millis(100);
const LONGEST_SINK_WAIT: Duration = Duration::from_secs(30);

/// What becomes of a message that was given up.
const DEAD_LETTERED: &str = "it becomes a dead letter";
const HALTED: &str = "its lane halts";
const DISCARDED: &str = "it is discarded";

/// From this refusal of a letter on, a person must look: the sink is not merely slow.
const IN_A_ROW: u32 = 3;

impl<T: Spec> Failures<T> {
    /// Handles a failed attempt. Returns what the runner runs next: the dead letter, or the next
    /// job of the key. `None`: the message waits.
    pub(crate) fn failed(
        &self,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        unsettled: Unsettled<T>,
        mut failure: Failure<T::Error>,
    ) -> Option<Queued<T>> {
        let (key, attempt) = (context.key.take(), context.attempt);
        let Unsettled {
            hash,
            envelope,
            kept,
        } = unsettled;
        if self.decisions.sources.is_revoked(&envelope.obligation) {
            // What was dropped because of the revoke has not failed.
            let was_dropped = matches!(failure, Failure::Revoked | Failure::LeaseLost);
            let ended = attempt.saturating_sub(u32::from(was_dropped));
            self.probe.drop_quietly(failure);
            return self.give_back_failed(tally, key, hash, envelope, ended);
        }
        let (key, kept) = match (failure, key, kept) {
            (Failure::LeaseLost, Some(key), Some(message)) => {
                return self
                    .decisions
                    .lost_lease(tally, key, hash, (message, envelope, attempt));
            }
            (other, key, kept) => {
                failure = other;
                (key, kept)
            }
        };
        self.count_failure(key.as_ref(), hash, attempt, &failure);
        if key.is_some() {
            self.probe.failed.record(hash, attempt, why(&failure));
        }
        let Some(message) = kept else {
            // There will be neither a retry nor a letter, so no copy of the message is kept.
            self.warn_given_up(key.as_ref(), hash, attempt, DISCARDED);
            self.probe.notify_discarded(key.as_ref(), attempt, &failure);
            self.settlement
                .settle(tally, envelope, Outcome::Discarded(failure));
            return self.decisions.advance(key, hash);
        };
        let is_of_source = envelope.obligation.source().is_some();
        match self.verdict(key.is_some(), is_of_source, attempt, &failure) {
            Verdict::Retry(wait) => {
                let why = why(&failure);
                self.probe.drop_quietly(failure);
                let next = attempt + 1;
                let held = Held {
                    message,
                    envelope,
                    work: Work::Attempt(next),
                    why,
                };
                self.decisions.back_off(tally, key, hash, held, wait)
            }
            Verdict::DeadLetter => {
                self.warn_given_up(key.as_ref(), hash, attempt, DEAD_LETTERED);
                let work = Work::letter(attempt, failure, None);
                let letter = Job {
                    key,
                    hash,
                    message,
                    envelope: envelope.into(),
                    work,
                };
                Some(letter.into())
            }
            Verdict::Halt => {
                self.warn_given_up(key.as_ref(), hash, attempt, HALTED);
                let why = why(&failure);
                let work = Work::letter(attempt, failure, None);
                let held = Held {
                    message,
                    envelope,
                    work,
                    why,
                };
                self.halt(tally, key, hash, held)
            }
            Verdict::Discard => {
                self.warn_given_up(key.as_ref(), hash, attempt, DISCARDED);
                self.probe.notify_discarded(key.as_ref(), attempt, &failure);
                self.probe.drop_quietly(message);
                self.settlement
                    .settle(tally, envelope, Outcome::Discarded(failure));
                self.decisions.advance(key, hash)
            }
        }
    }

    /// Gives a failed message back that its source has taken back, and moves its lane on.
    fn give_back_failed(
        &self,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        envelope: Envelope<T>,
        ended: u32,
    ) -> Option<Queued<T>> {
        let version = envelope.obligation.version();
        let back = HandedBack {
            key: None,
            message: None,
            attempts: ended,
            interrupted: true,
        };
        // First: once it is back, its source may give it again.
        self.decisions.rewind(key.as_ref(), hash, version);
        self.settlement.hand_back(tally, back, envelope);
        self.decisions.advance(key, hash)
    }

    /// Whether a message whose last attempt ended with its process is tried again.
    pub(crate) fn may_start_again(&self, is_keyed: bool, attempts: u32) -> bool {
        let verdict = self.verdict(is_keyed, true, attempts, &Failure::Crashed);
        matches!(verdict, Verdict::Retry(_))
    }

    /// Computes the verdict. If a policy of the user panics, the attempts end.
    fn verdict(
        &self,
        is_keyed: bool,
        is_of_source: bool,
        attempt: u32,
        failure: &Failure<T::Error>,
    ) -> Verdict {
        let policy = Policy {
            retry: self.settings.retry.as_ref(),
            on_exhausted: &self.settings.on_exhausted,
            is_keyed,
            is_of_source,
        };
        // `retry_if` and custom delays are user code.
        caught(|| policy.verdict(attempt, failure, dice())).unwrap_or_else(|text| {
            self.probe.counters.panics.add(1);
            tracing::error!(
                target: "keylane",
                panic = %text,
                "the retry policy panicked: the message is not retried"
            );
            policy.given_up()
        })
    }

    fn warn_given_up(&self, key: Option<&T::Key>, hash: u64, attempts: u32, fate: &str) {
        tracing::warn!(
            target: "keylane",
            key = %self.probe.shown(key, hash),
            attempts,
            "gave up on the message: {fate}"
        );
    }

    /// Handles a letter that the sink refused: it is delivered again later, and the lane waits.
    pub(crate) fn refused(
        &self,
        tally: &mut Tally,
        job: Job<T>,
        error: String,
    ) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            mut work,
        } = job;
        let envelope = self
            .decisions
            .start_alone(tally, key.as_ref(), hash, envelope);
        if self.decisions.sources.is_revoked(&envelope.obligation) {
            let attempts = work.attempts();
            self.probe.drop_quietly((message, work));
            return self.give_back_failed(tally, key, hash, envelope, attempts);
        }
        self.probe.counters.letter_failures.add(1);
        let error = cut(error, LONGEST_WHY);
        let mut wait = SINK_WAIT;
        if let Work::Letter(given_up) = &mut work {
            wait = SINK_WAIT
                .saturating_mul(1_u32.checked_shl(given_up.refusals).unwrap_or(u32::MAX))
                .min(LONGEST_SINK_WAIT);
            given_up.refusals = given_up.refusals.saturating_add(1);
            let shown = self.probe.shown(key.as_ref(), hash);
            let refusals = given_up.refusals;
            const WHAT: &str =
                "the dead-letter sink did not accept the message, will retry; its key waits";
            match refusals < IN_A_ROW {
                true => tracing::warn!(target: "keylane", key = %shown, refusals, %error, "{WHAT}"),
                false => {
                    tracing::error!(target: "keylane", key = %shown, refusals, %error, "{WHAT}")
                }
            }
        }
        let held = Held {
            message,
            envelope,
            work,
            why: error.into(),
        };
        self.decisions.back_off(tally, key, hash, held, wait)
    }

    /// Halts a lane. What is parked in it is stalled from now on.
    fn halt(
        &self,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        held: Held<T>,
    ) -> Option<Queued<T>> {
        let Some(key) = key else {
            tracing::error!(
                target: "keylane",
                error = %held.why,
                "a message without a key is held: it goes back to its source when the intake ends"
            );
            self.decisions.hold_laneless(tally, held, None);
            return None;
        };
        tracing::error!(
            target: "keylane",
            key = %self.probe.shown(Some(&key), hash),
            error = %held.why,
            "a lane is halted: resume, skip or replace its head"
        );
        self.settlement.flush(tally);
        let halting = self.probe.halting(&held);
        let told = cloned(&key);
        let next = self.decisions.hold_head(tally, key, hash, held, Hold::Halt);
        // After the lane has halted: a subscriber may decide about it at once.
        if let Some(key) = told {
            self.probe.notify_halted(&key, halting);
        }
        next
    }

    fn count_failure(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        attempt: u32,
        failure: &Failure<T::Error>,
    ) {
        self.probe.counters.failures.add(1);
        match failure {
            Failure::Panicked(_) => self.probe.counters.panics.add(1),
            Failure::TimedOut(_) => self.probe.counters.timeouts.add(1),
            _ => {}
        }
        if tracing::enabled!(target: "keylane", tracing::Level::WARN) {
            let key = self.probe.shown(key, hash);
            let failure = why(failure);
            tracing::warn!(target: "keylane", %key, attempt, error = %failure, "an attempt failed");
        }
    }
}

/// A number from 0 to 1 for jitter. It only has to be spread out.
fn dice() -> f64 {
    let bits = random::bits().unwrap_or(1 << 63);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
