//! What happens to a message after a failed attempt, and to the lane behind it.

use std::time::Duration;

use keylane_lanes::Hold;
use keylane_rt::cut;
use keylane_rt::unwind::{caught, cloned};
use tracing::Level;

use super::Failures;
use super::verdict::{Policy, Verdict};
use crate::engine::end::HandedBack;
use crate::engine::message::{Envelope, Held, Job, LONGEST_WHY, Queued, Unsettled, Work, why};
use crate::engine::settlement::{Outcome, Tally};
use crate::engine::sources::SourceSlot;
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::message_line::{Fate, What};
use crate::random;
use crate::types::Spec;

/// The first backoff after the dead-letter sink refused. It doubles up to `LONGEST_SINK_WAIT`.
const SINK_WAIT: Duration = Duration::from_millis(100);
const LONGEST_SINK_WAIT: Duration = Duration::from_secs(30);

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
        let source = envelope.obligation.source();
        self.count_failure(key.as_ref(), hash, source, attempt, &failure);
        // Formatted once: it is the user's own code.
        let said = key.is_some().then(|| why(&failure));
        if let Some(said) = &said {
            self.probe.failed.record(hash, attempt, said.clone());
        }
        let Some(message) = kept else {
            // There will be neither a retry nor a letter, so no copy of the message is kept.
            self.log_given_up(key.as_ref(), hash, source, attempt, Fate::Discard);
            self.probe.notify_discarded(key.as_ref(), attempt, &failure);
            self.settlement
                .settle(tally, envelope, Outcome::Discarded(failure));
            return self.decisions.advance(key, hash);
        };
        let (verdict, panic) = self.verdict(key.is_some(), source.is_some(), attempt, &failure);
        if let Some(panic) = panic {
            let key = self.probe.shown(key.as_ref(), hash);
            let panicked = || What::RetryPanicked { panic };
            self.decisions
                .sources
                .log(Level::ERROR, key, source, panicked);
        }
        match verdict {
            Verdict::Retry(wait) => {
                let why = said.unwrap_or_else(|| why(&failure));
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
                self.log_given_up(key.as_ref(), hash, source, attempt, Fate::DeadLetter);
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
                let fate = match key {
                    Some(_) => Fate::Halt,
                    None => Fate::Hold,
                };
                self.log_given_up(key.as_ref(), hash, source, attempt, fate);
                let why = said.unwrap_or_else(|| why(&failure));
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
                self.log_given_up(key.as_ref(), hash, source, attempt, Fate::Discard);
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
        // After a panic, the same question comes again, and is logged then.
        let (verdict, _) = self.verdict(is_keyed, true, attempts, &Failure::Crashed);
        matches!(verdict, Verdict::Retry(_))
    }

    /// Computes the verdict. If a policy of the user panics, the attempts end, and the text of the
    /// panic is returned too.
    fn verdict(
        &self,
        is_keyed: bool,
        is_of_source: bool,
        attempt: u32,
        failure: &Failure<T::Error>,
    ) -> (Verdict, Option<String>) {
        let policy = Policy {
            retry: self.settings.retry.as_ref(),
            on_exhausted: &self.settings.on_exhausted,
            is_keyed,
            is_of_source,
        };
        // `retry_if` and custom delays are user code.
        match caught(|| policy.verdict(attempt, failure, dice())) {
            Ok(verdict) => (verdict, None),
            Err(panic) => {
                self.probe.counters.panics.add(1);
                (policy.given_up(), Some(panic))
            }
        }
    }

    pub(super) fn log_given_up(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        source: Option<SourceSlot>,
        attempts: u32,
        fate: Fate,
    ) {
        let key = self.probe.shown(key, hash);
        let given_up = || What::GivenUp { attempts, fate };
        self.decisions
            .sources
            .log(Level::WARN, key, source, given_up);
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
            let refused = What::LetterRefused {
                refusals: given_up.refusals,
                error: error.as_str().into(),
            };
            let source = envelope.obligation.source();
            let key = self.probe.shown(key.as_ref(), hash);
            let level = refused.level();
            self.decisions.sources.log(level, key, source, || refused);
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
        let error = || held.why.clone();
        let source = held.envelope.obligation.source();
        let shown = self.probe.shown(key.as_ref(), hash);
        let is_keyed = key.is_some();
        self.decisions
            .sources
            .log(Level::ERROR, shown, source, || match is_keyed {
                true => What::Halted { error: error() },
                false => What::HeldWithoutKey { error: error() },
            });
        let Some(key) = key else {
            self.decisions.hold_laneless(tally, held, None);
            return None;
        };
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
        source: Option<SourceSlot>,
        attempt: u32,
        failure: &Failure<T::Error>,
    ) {
        self.probe.counters.failures.add(1);
        match failure {
            Failure::Panicked(_) => self.probe.counters.panics.add(1),
            Failure::TimedOut(_) => self.probe.counters.timeouts.add(1),
            _ => {}
        }
        self.log_failed(key, hash, source, attempt, failure);
    }

    pub(super) fn log_failed(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        source: Option<SourceSlot>,
        attempt: u32,
        failure: &Failure<T::Error>,
    ) {
        let key = self.probe.shown(key, hash);
        let failed = || What::Failed {
            attempt,
            error: why(failure),
        };
        self.decisions.sources.log(Level::WARN, key, source, failed);
    }
}

/// A number from 0 to 1 for jitter. It only has to be spread out.
fn dice() -> f64 {
    let bits = random::bits().unwrap_or(1 << 63);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
