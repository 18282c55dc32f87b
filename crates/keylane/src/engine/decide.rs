//! What an operator decides about one key.

use super::message::{Held, Parked, Standing, Ticket, Turn, Work};
use super::settle::{Outcome, Tally};
use super::think::{After, later};
use super::verdict::TICK;
use super::{Engine, Lane};
use crate::clock;
use crate::error::Failure;
use crate::lanes::{Next, Rest, State, Timer};
use crate::rt::Arc;
use crate::rt::atomic::Ordering;
use crate::types::{Spec, Types};

/// Why a decision does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecidable {
    /// Nothing of the key waits for such a decision.
    Nothing,
    /// The head is with its handler, or with the dead-letter sink.
    InFlight,
}

/// What a decision took out of a lane.
enum Taken<T: Types> {
    /// The head that the lane held: it is out, and in the operator's hands.
    Head(Box<Held<T>>),
    /// The first of the parked, which was the head.
    Parked(Parked<T>),
    /// The wait for missing versions.
    Gap,
}

impl<T: Spec> Engine<T> {
    /// Whether any lane is paused.
    #[inline]
    pub(super) fn has_paused(&self) -> bool {
        self.cautions.paused.load(Ordering::Relaxed) > 0
    }

    /// Nothing of this key starts until it is resumed.
    pub(crate) fn pause(&self, key: &T::Key, hash: u64) {
        let mut after = After::new();
        self.lanes.with_any(hash, key, |lane| {
            if lane.is_paused() {
                return;
            }
            lane.extra_mut().paused = true;
            self.cautions.paused.fetch_add(1, Ordering::SeqCst);
            if let State::Resting { why, .. } = *lane.state() {
                if why == Rest::HaltedGap {
                    self.halted.fetch_sub(1, Ordering::Relaxed);
                }
                if !matches!(why, Rest::Loading | Rest::Recording) {
                    lane.rest_on(Rest::Paused, None);
                }
                self.set_lane_apart(lane, &mut after.freed);
            }
            after.rests = true;
        });
        self.carry_out(after, key, hash);
    }

    /// A paused lane goes on; or a halted head goes out again, as a first attempt; or missing versions
    /// are waited for once more.
    pub(crate) fn resume(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        let owner = key.clone();
        let now = clock::now();
        let mut again = None;
        let mut is_counted = false;
        let resumed = self.lanes.with(hash, key, |lane| {
            if lane.is_paused() {
                self.forget_pause(lane);
                is_counted = lane.timer() == Timer::Used;
                return Ok(self.unpause(lane, now));
            }
            match lane.state() {
                State::Halted { .. } => {
                    again = Some(lane.resume());
                    Ok((None, false))
                }
                State::Resting {
                    why: Rest::HaltedGap,
                    ..
                } => {
                    self.halted.fetch_sub(1, Ordering::Relaxed);
                    self.miss_anew(lane, key, hash, now);
                    Ok((None, false))
                }
                _ => Err(Undecidable::Nothing),
            }
        });
        let (due, calls) = resumed.unwrap_or(Err(Undecidable::Nothing))?;
        if let Some(mut head) = again {
            let attempts = u8::try_from(head.work.attempts()).unwrap_or(u8::MAX);
            let load = head.ticket.debt.load_mut();
            load.earlier = load.earlier.saturating_add(attempts);
            self.halted.fetch_sub(1, Ordering::Relaxed);
            self.restart(owner, hash, *head);
        } else if let Some(head) = due {
            let is_retry = matches!(head.work, Work::Attempt(_)) && !is_counted;
            self.probe.counters.retries.add(u64::from(is_retry));
            self.enqueue(Turn::again(Some(owner), hash, *head));
        } else if calls {
            self.enqueue(self.called(owner, hash));
        }
        Ok(())
    }

    /// Under the shard's lock: what a lane lets out that is not paused any more.
    #[allow(clippy::type_complexity, reason = "the two things that may be out now")]
    fn unpause(&self, lane: &mut Lane<T>, now: clock::Instant) -> (Option<Box<Held<T>>>, bool) {
        match lane.state() {
            // The store has not answered; when it has, the lane goes on.
            State::Resting {
                why: Rest::Loading | Rest::Recording,
                ..
            } => (None, false),
            State::Resting { .. } => {
                lane.call();
                (None, true)
            }
            // Its timer has gone off, perhaps since `now` was read, or is about to.
            State::Backoff { until, .. } if !lane.is_timed() || *until <= now + TICK => {
                self.forget_timer(lane);
                (Some(lane.due()), false)
            }
            _ => (None, false),
        }
    }

    /// Under the shard's lock: the missing versions get their time once more.
    fn miss_anew(&self, lane: &mut Lane<T>, key: &T::Key, hash: u64, now: clock::Instant) {
        let Some(sequencing) = self.sequencing() else {
            return;
        };
        if let Some(sequencer) = &mut lane.extra_mut().sequencer {
            sequencer.wait_anew(now);
        }
        let until = later(now, sequencing.patience);
        lane.rest_on(Rest::Gap, Some(until));
        let (key, since) = (key.clone(), now);
        self.rouse_at(super::Rouse::Gap { key, hash, since }, until, now);
    }

    /// The waiting head settles as skipped, or as the failure it was halted by; the key goes on
    /// behind it. Missing versions are given up.
    pub(crate) fn skip(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        let owner = key.clone();
        let now = clock::now();
        let mut after = After::new();
        let (mut calls, mut drained) = (false, false);
        let taken = self.lanes.with(hash, key, |lane| {
            let taken = match *lane.state() {
                State::Ready | State::Running { .. } => return Err(Undecidable::InFlight),
                State::Backoff { .. } | State::Halted { .. } => {
                    let halted = lane.is_halted();
                    return Ok(Taken::Head(self.take_held(lane, halted)));
                }
                State::Resting { why, .. } if matches!(why, Rest::Gap | Rest::HaltedGap) => {
                    if why == Rest::HaltedGap {
                        self.halted.fetch_sub(1, Ordering::Relaxed);
                    }
                    if let Some(sequencer) = &mut lane.extra_mut().sequencer {
                        sequencer.skip_gap();
                    }
                    lane.rest_on(Rest::Idle, None);
                    self.line_up(lane, self.has_gaps(), now);
                    if let Some(sequencing) = self.sequencing() {
                        self.watch_gap(lane, sequencing, (key, hash), None, now);
                    }
                    Taken::Gap
                }
                State::Resting { .. } | State::Called => {
                    let parked = lane.take_parked().ok_or(Undecidable::Nothing)?;
                    if lane.parked_len() == 0
                        && let Some(extra) = lane.extra_if_any()
                    {
                        extra.merged = 0;
                    }
                    after.opening = self.open_gate(lane, lane.depth());
                    // Nobody asks a paused lane.
                    drained = lane.is_paused()
                        && !lane.is_out()
                        && self.passes_bar(lane, key, &Next::Stay);
                    Taken::Parked(parked)
                }
            };
            if let State::Resting { .. } = lane.state()
                && !lane.is_paused()
            {
                lane.call();
                calls = true;
            }
            Ok(taken)
        });
        self.carry_out(after, key, hash);
        if drained {
            self.tell_drained();
        }
        let mut tally = Tally::default();
        match taken.unwrap_or(Err(Undecidable::Nothing))? {
            Taken::Gap => {}
            Taken::Parked(Parked { message, ticket }) => {
                self.drop_quietly(message);
                self.settle(&mut tally, ticket, Outcome::Discarded(Failure::Skipped));
            }
            Taken::Head(head) => {
                let Held {
                    message,
                    ticket,
                    work,
                    ..
                } = *head;
                self.drop_quietly(message);
                let failure = match work {
                    Work::Letter(given_up) => given_up.failure,
                    Work::Attempt(_) => Failure::Skipped,
                };
                self.settle(&mut tally, ticket, Outcome::Discarded(failure));
                let next = self.advance(Some(owner.clone()), hash);
                if let Some(next) = next {
                    self.enqueue(next);
                }
            }
        }
        self.flush(&mut tally);
        if calls {
            self.enqueue(self.called(owner, hash));
        }
        Ok(())
    }

    /// Under the shard's lock: the head that the lane holds is out, in the operator's hands.
    fn take_held(&self, lane: &mut Lane<T>, halted: bool) -> Box<Held<T>> {
        if halted {
            self.halted.fetch_sub(1, Ordering::Relaxed);
            lane.resume()
        } else {
            self.forget_timer(lane);
            lane.due()
        }
    }

    /// The timer of a head in backoff, if there is one, will find nothing. Under the shard's lock.
    fn forget_timer(&self, lane: &Lane<T>) {
        if lane.is_timed() {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The waiting head goes on with another message; the old one comes back. A head that has failed
    /// goes out at once, as a first attempt.
    pub(crate) fn replace(
        self: &Arc<Self>,
        key: &T::Key,
        hash: u64,
        message: T::Message,
        weight: u32,
    ) -> Result<T::Message, (T::Message, Undecidable)> {
        let owner = key.clone();
        let mut message = Some(message);
        let mut swapped = None;
        let mut freed = 0;
        let held = self.lanes.with(hash, key, |lane| match lane.state() {
            State::Ready | State::Running { .. } => Err(Undecidable::InFlight),
            State::Backoff { .. } | State::Halted { .. } => {
                let halted = lane.is_halted();
                Ok(Some(self.take_held(lane, halted)))
            }
            State::Resting { .. } | State::Called => {
                let front = lane.parked_mut().next().ok_or(Undecidable::Nothing)?;
                if let Some(message) = message.take() {
                    swapped = Some(std::mem::replace(&mut front.message, message));
                    freed = self.reweigh(&mut front.ticket, weight);
                }
                Ok(None)
            }
        });
        self.give_room(0, freed);
        match (held.unwrap_or(Err(Undecidable::Nothing)), message) {
            (Ok(Some(head)), Some(message)) => {
                let mut head = *head;
                let old = std::mem::replace(&mut head.message, message);
                let freed = self.reweigh(&mut head.ticket, weight);
                self.give_room(0, freed);
                self.restart(owner, hash, head);
                Ok(old)
            }
            (Err(why), Some(message)) => Err((message, why)),
            _ => Ok(swapped.expect("the front has the new message")),
        }
    }

    /// Another message, of another size, stands for this ticket from now on. Returns the bytes that
    /// are to be given back once the shard's lock is gone.
    fn reweigh(&self, ticket: &mut Ticket<T>, weight: u32) -> usize {
        let load = ticket.debt.load_mut();
        load.earlier = 0;
        let mut freed = 0;
        if let (Standing::Load, Some(bytes)) = (load.standing, &self.bytes) {
            match weight.checked_sub(load.weight()) {
                None => freed = (load.weight() - weight) as usize,
                Some(more) => match bytes.try_acquire_many(more) {
                    Ok(permit) => permit.forget(),
                    // It was let in once and is not turned away now; it gives back what it took.
                    Err(_) => return 0,
                },
            }
        }
        load.set_weight(weight);
        freed
    }

    fn restart(self: &Arc<Self>, key: T::Key, hash: u64, head: Held<T>) {
        let Held {
            message,
            ticket,
            work,
            ..
        } = head;
        self.drop_quietly(work);
        let work = Work::Attempt(1);
        self.enqueue(Turn {
            key: Some(key),
            hash,
            message,
            ticket,
            work,
        });
    }

    /// Settles everything of a key that has not started, or waits after a failure. Returns how many.
    pub(crate) fn purge(self: &Arc<Self>, key: &T::Key, hash: u64) -> usize {
        let owner = key.clone();
        let (mut forgotten, mut calls) = (None, false);
        let now = clock::now();
        let purged = self.lanes.advance(hash, key, |lane| {
            let opening = self.remove_gate(lane);
            let stopped = lane.is_stopped();
            self.forget_timer(lane);
            let (is_out, is_paused) = (lane.is_out(), lane.is_paused());
            let (head, parked) = lane.hand_back();
            let next = if is_out {
                Next::Stay
            } else if is_paused {
                lane.rest_again(Rest::Paused);
                Next::Stay
            } else if lane
                .extra()
                .is_some_and(|extra| extra.tat > self.stamp(now))
                && !cfg!(keylane_mutant = "purge-forgets-rate")
            {
                // It remembers its rate. Whoever takes the call finds nothing else.
                lane.rest_again(Rest::Idle);
                lane.call();
                calls = true;
                Next::Stay
            } else {
                forgotten = self.remember(lane, key, hash, now);
                Next::Remove
            };
            let drained = !is_out && self.passes_bar(lane, key, &next);
            Some(((head, parked, opening, stopped, drained), next))
        });
        self.drop_quietly(forgotten);
        let Some(((head, parked, opening, stopped, drained), _)) = purged else {
            return 0;
        };
        opening.carry_out();
        if drained {
            self.tell_drained();
        }
        if calls {
            self.enqueue(self.called(owner, hash));
        }
        if stopped {
            self.halted.fetch_sub(1, Ordering::Relaxed);
        }
        let mut tally = Tally::default();
        let mut count = parked.len();
        if let Some(head) = head {
            count += 1;
            let Held {
                message,
                ticket,
                work,
                ..
            } = *head;
            self.drop_quietly(work);
            self.settle(&mut tally, ticket, Outcome::Purged(message));
        }
        for Parked { message, ticket } in parked {
            self.settle(&mut tally, ticket, Outcome::Purged(message));
        }
        self.flush(&mut tally);
        count
    }

    /// A head that waits for its next attempt, or for the dead-letter sink, goes out now.
    pub(crate) fn retry_now(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        let owner = key.clone();
        let head = self.lanes.with(hash, key, |lane| match lane.state() {
            State::Backoff { .. } if !lane.is_paused() => Ok(self.take_held(lane, false)),
            State::Ready | State::Running { .. } => Err(Undecidable::InFlight),
            _ => Err(Undecidable::Nothing),
        });
        let head = head.unwrap_or(Err(Undecidable::Nothing))?;
        if let Work::Attempt(_) = head.work {
            self.probe.counters.retries.add(1);
        }
        self.enqueue(Turn::again(Some(owner), hash, *head));
        Ok(())
    }
}
