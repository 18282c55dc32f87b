//! What happens to a message after an attempt, and to the key behind it.

use std::time::Duration;

use super::apart::Freed;
use super::gate::Opening;
use super::hand::Owed;
use super::message::{Due, Held, Parked, Queued, Turn, Work};
use super::settle::{Outcome, Tally};
use super::think::After;
use super::{Engine, Lane};
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::handler::Context;
use crate::lanes::{Next, Rest, Timer};
use crate::letter::Exhausted;
use crate::observe::trace::cut;
use crate::random;
use crate::rt::Arc;
use crate::rt::atomic::Ordering;
use crate::types::{Spec, Types};
use crate::unwind::{caught, cloned};

/// Most characters of an error kept to say why a lane waits.
const LONGEST_WHY: usize = 256;

/// The wheel's resolution: it may be early by less than this.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The first wait for a dead-letter sink that refused; it doubles up to `LONGEST_SINK_WAIT`.
const SINK_WAIT: Duration = Duration::from_millis(100);
const LONGEST_SINK_WAIT: Duration = Duration::from_secs(30);

/// What is to be done once a head has left a lane that was not plain.
struct Departure<T: Types> {
    opening: Opening,
    after: After<T>,
    drained: bool,
}

impl<T: Spec> Engine<T> {
    /// The head of a lane has settled: returns the turn of the next message of the key, or the call
    /// of a lane that thinks.
    #[inline]
    pub(super) fn advance(&self, key: Option<T::Key>, hash: u64) -> Option<Queued<T>> {
        let key = key?;
        if self.settings.thinks {
            return self.advance_thinking(key, hash);
        }
        let (mut turn, mut departure) = (None, None);
        self.lanes.advance(hash, &key, |lane| {
            // Hardly any lane is full, paused or barred, and what is not is not asked further.
            let next = match lane.extra() {
                None => lane.finish(),
                Some(_) => self.depart(lane, &key, hash, &mut departure),
            };
            let next = match next {
                // Made here and handed past the map, so that the message is moved once.
                Next::Start(parked) => {
                    turn = Some(Turn::first(None, hash, parked));
                    Next::Stay
                }
                next => next,
            };
            Some(((), next))
        })?;
        if let Some(departure) = departure {
            self.see_off(departure, &key, hash);
        }
        let mut turn = turn?;
        turn.key = Some(key);
        Some(turn.into())
    }

    /// Under the shard's lock: the head has settled of a lane that is full, paused or barred, or was.
    #[cold]
    fn depart(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        departure: &mut Option<Departure<T>>,
    ) -> Next<Parked<T>> {
        let opening = self.see_departure(lane);
        let mut after = After::new();
        let next = if lane.is_paused() {
            lane.finish_calling();
            let why = (Rest::Paused, None);
            self.rest(lane, key, hash, why, clock::now(), &mut after)
        } else {
            lane.finish()
        };
        let drained = self.passes_bar(lane, key, &next);
        *departure = Some(Departure {
            opening,
            after,
            drained,
        });
        next
    }

    /// What a departure has brought about, without the lock.
    #[cold]
    fn see_off(&self, departure: Departure<T>, key: &T::Key, hash: u64) {
        departure.opening.carry_out();
        if departure.drained {
            self.tell_drained();
        }
        self.carry_out(departure.after, key, hash);
    }

    /// An attempt failed. Decides, and returns the turn of the next message if the head settled.
    pub(super) fn failed(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        owed: Owed<T>,
        failure: Failure<T::Error>,
    ) -> Option<Queued<T>> {
        let (key, attempt) = (context.key.take(), context.attempt);
        let Owed { hash, ticket, kept } = owed;
        self.count_failure(key.as_ref(), hash, attempt, &failure);
        let Some(message) = kept else {
            self.notify_discarded(key.as_ref(), attempt, &failure);
            self.settle(tally, ticket, Outcome::Discarded(failure));
            return self.advance(key, hash);
        };
        if let Some(wait) = self.retry_after(attempt, &failure) {
            let why = self.why(&failure);
            self.drop_quietly(failure);
            let held = Held {
                message,
                ticket,
                work: Work::Attempt(attempt + u32::from(!cfg!(keylane_mutant = "same-attempt"))),
                why,
            };
            self.back_off(tally, key, hash, held, wait);
            return None;
        }
        tracing::warn!(
            target: "keylane",
            key = %self.shown(key.as_ref(), hash),
            attempts = attempt,
            policy = ?self.settings.exhausted,
            "a message is given up on"
        );
        match &self.settings.exhausted {
            Exhausted::DeadLetter(_) => {
                let work = Work::letter(attempt, failure, None);
                #[cfg(keylane_mutant = "early-letter")]
                let _ = (self.advance(key.clone(), hash)).map(|next| self.enqueue(next));
                let letter = Turn {
                    key,
                    hash,
                    message,
                    ticket,
                    work,
                };
                Some(letter.into())
            }
            Exhausted::Halt if key.is_some() && !cfg!(keylane_mutant = "halt-goes-on") => {
                let why = self.why(&failure);
                let work = Work::letter(attempt, failure, None);
                self.halt(
                    tally,
                    key,
                    hash,
                    Held {
                        message,
                        ticket,
                        work,
                        why,
                    },
                );
                None
            }
            Exhausted::Halt | Exhausted::Discard => {
                self.notify_discarded(key.as_ref(), attempt, &failure);
                self.drop_quietly(message);
                self.settle(tally, ticket, Outcome::Discarded(failure));
                self.advance(key, hash)
            }
        }
    }

    /// The sink refused a letter: it is brought again later, and the key waits for it.
    pub(super) fn refused(self: &Arc<Self>, tally: &mut Tally, turn: Turn<T>, error: String) {
        self.probe.counters.letter_failures.add(1);
        let Turn {
            key,
            hash,
            message,
            ticket,
            mut work,
        } = turn;
        let error = cut(error, LONGEST_WHY);
        let mut wait = SINK_WAIT;
        if let Work::Letter(given_up) = &mut work {
            wait = SINK_WAIT
                .saturating_mul(1_u32.checked_shl(given_up.refusals).unwrap_or(u32::MAX))
                .min(LONGEST_SINK_WAIT);
            given_up.refusals = given_up.refusals.saturating_add(1);
            tracing::error!(
                target: "keylane",
                key = %self.shown(key.as_ref(), hash),
                refusals = given_up.refusals,
                %error,
                "a dead-letter sink refused a letter; the key waits for it"
            );
        }
        let held = Held {
            message,
            ticket,
            work,
            why: error.into(),
        };
        self.back_off(tally, key, hash, held, wait);
    }

    /// Lets a head wait. Whatever waits with it is no load from now on.
    fn back_off(
        self: &Arc<Self>,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        mut held: Held<T>,
        wait: Duration,
    ) {
        if self.shutdown.hands_back() {
            self.hand_back_held(tally, key.as_ref().and_then(cloned), held);
            self.release_handing_back(tally, key, hash);
            return;
        }
        // The room it held must not stay in a tally while it waits.
        self.flush(tally);
        let now = clock::now();
        let until = now.checked_add(wait).unwrap_or(now);
        let mut freed = Freed::default();
        let Some(key) = key else {
            self.set_apart(&mut held.ticket, &mut freed);
            let number = self.keyless.insert(held);
            self.arm(Due::Keyless(number), until, now);
            self.free(&freed);
            // The end may have come meanwhile, and the router may have looked for the last time.
            if self.shutdown.hands_back()
                && let Some(held) = self.keyless.take(number)
            {
                self.hand_back_held(tally, None, held);
                self.flush(tally);
            }
            return self.shutdown.nudge();
        };
        #[cfg(keylane_mutant = "retry-at-tail")]
        return self.retry_at_tail(key, hash, held);
        self.see_stalled(hash, held.ticket.parked_at);
        self.hold_head(tally, &key, hash, held, |lane, held| {
            let due = Due::Lane {
                key: key.clone(),
                hash,
                until,
            };
            lane.back_off(held, until);
            self.set_lane_apart(lane, &mut freed);
            self.arm(due, until, now);
        });
        self.free(&freed);
        // The end may have come meanwhile; then the router has swept, or sweeps again for us.
        // A paused lane has no end either once nobody is going to resume it.
        let is_over = self.shutdown.hands_back() && !cfg!(keylane_mutant = "late-backoff");
        let is_stuck = self.has_paused() && self.shutdown.is_exhausted();
        if is_over || (is_stuck && !cfg!(keylane_mutant = "late-pause")) {
            self.sweep_one(tally, &key, hash);
        }
    }

    #[cfg(keylane_mutant = "retry-at-tail")]
    fn retry_at_tail(self: &Arc<Self>, key: T::Key, hash: u64, held: Held<T>) {
        let Held {
            message, ticket, ..
        } = held;
        let parked = super::message::Parked { message, ticket };
        let next = self.lanes.advance(hash, &key, |lane| {
            let at_limit = crate::lanes::AtLimit::Park;
            let _ = lane.offer(parked, usize::MAX, at_limit, self.lanes.spares());
            Some(((), lane.finish()))
        });
        if let Some((_, Some(next))) = next {
            self.enqueue(Turn::first(Some(key), hash, next));
        }
    }

    /// Stops a lane. Whatever waits in it is no load from now on.
    fn halt(&self, tally: &mut Tally, key: Option<T::Key>, hash: u64, held: Held<T>) {
        let Some(key) = key else { return };
        tracing::error!(
            target: "keylane",
            key = %self.shown(Some(&key), hash),
            why = %held.why,
            "a lane is halted: resume, skip or replace its head"
        );
        self.flush(tally);
        let mut freed = Freed::default();
        self.see_stalled(hash, held.ticket.parked_at);
        let halting = self.halting(&held);
        self.hold_head(tally, &key, hash, held, |lane, held| {
            lane.halt(held);
            // Before anybody can see the lane, and resume it.
            self.halted.fetch_add(1, Ordering::Relaxed);
            self.set_lane_apart(lane, &mut freed);
        });
        self.free(&freed);
        self.notify_halted(&key, halting);
        // Nobody will decide any more once the channel is empty for good. Before that, messages of
        // this key may still arrive, and must not start a lane that forgot its failed head.
        if self.shutdown.is_exhausted() && !cfg!(keylane_mutant = "late-halt") {
            self.sweep_one(tally, &key, hash);
        }
    }

    /// Gives a head back to its lane. If the key's own `Eq` or `Clone` panics there, the head is
    /// handed back, and it is an abort.
    fn hold_head(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        held: Held<T>,
        put: impl FnOnce(&mut Lane<T>, Box<Held<T>>),
    ) {
        let mut held = Some(Box::new(held));
        let tried = caught(|| {
            self.lanes.with(hash, key, |lane| {
                if let Some(held) = held.take() {
                    put(lane, held);
                }
            })
        });
        if tried.is_err() || held.is_some() {
            self.count_lost();
            if let Some(held) = held {
                self.hand_back_held(tally, cloned(key), *held);
            }
            self.flush(tally);
        }
    }

    fn retry_after(&self, attempt: u32, failure: &Failure<T::Error>) -> Option<Duration> {
        let retry = self.settings.retry.as_ref()?;
        // `retry_if` and custom delays are the user's.
        match caught(|| retry.after(attempt, failure, dice())) {
            Ok(wait) => wait,
            Err(text) => {
                self.probe.counters.panics.add(1);
                tracing::error!(target: "keylane", panic = %text, "a retry policy panicked");
                None
            }
        }
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
            let key = self.shown(key, hash);
            let failure = self.why(failure);
            tracing::warn!(target: "keylane", %key, attempt, %failure, "an attempt failed");
        }
    }

    /// A failure in a few words. Runs the user's `Debug`, so never under a lock.
    pub(super) fn why(&self, failure: &Failure<T::Error>) -> Box<str> {
        match caught(|| failure.to_string()) {
            Ok(text) => cut(text, LONGEST_WHY).into(),
            Err(_) => "an error whose `Debug` panics".into(),
        }
    }

    /// Arms a timer, and makes sure that the router waits for it.
    pub(super) fn arm(&self, due: Due<T::Key>, until: Instant, now: Instant) {
        if self.timers.arm(due, until, now) {
            self.shutdown.nudge();
        }
    }

    /// What a timer brought: the turn of a head whose wait is over, if it is still there.
    pub(super) fn due(&self, due: Due<T::Key>, now: Instant) -> Option<Turn<T>> {
        match due {
            Due::Keyless(number) => Some(Turn::again(None, 0, self.keyless.take(number)?)),
            Due::Lane {
                key,
                hash,
                until: armed,
            } => {
                let head = self.lanes.with(hash, &key, |lane| {
                    let until = lane.backs_off_until().filter(|until| *until == armed);
                    let Some(until) = until else {
                        return Err(());
                    };
                    if until > now + TICK {
                        // The wheel has a longest wait; this head waits longer.
                        self.arm(
                            Due::Lane {
                                key: key.clone(),
                                hash,
                                until,
                            },
                            until,
                            now,
                        );
                        return Ok(None);
                    }
                    if lane.is_paused() {
                        // `resume` lets it go.
                        lane.extra_mut().timer = Timer::GoneOff;
                        return Ok(None);
                    }
                    Ok(Some(lane.due()))
                });
                let Some(Ok(head)) = head else {
                    // An operator was faster.
                    let less = |stale: usize| stale.checked_sub(1);
                    let (relaxed, stale) = (Ordering::Relaxed, &self.stale);
                    let _ = stale.fetch_update(relaxed, relaxed, less);
                    return None;
                };
                Some(Turn::again(Some(key), hash, *head?))
            }
        }
    }

    /// Whether what a timer brought is a retry, and not a letter.
    pub(super) fn is_retry(&self, due: &Due<T::Key>) -> bool {
        let is_attempt = |held: &Held<T>| matches!(held.work, Work::Attempt(_));
        // A paused one does not go out now.
        match due {
            Due::Keyless(number) => self.keyless.peek(*number, is_attempt).unwrap_or(false),
            Due::Lane { key, hash, until } => self
                .lanes
                .peek(*hash, key, |lane| {
                    lane.backs_off_until() == Some(*until)
                        && !lane.is_paused()
                        && lane.head().is_some_and(is_attempt)
                })
                .unwrap_or(false),
        }
    }
}

/// A number from 0 to 1 for jitter; it need not be more than spread.
fn dice() -> f64 {
    let bits = random::bits().unwrap_or(1 << 63);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
