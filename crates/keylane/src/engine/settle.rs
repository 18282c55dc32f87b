//! What happens to a message after an attempt, and the only place where it settles.

use std::fmt;
use std::time::Duration;

use super::caught::{caught, cloned, dropped, shielded};
use super::gate::Opening;
use super::hand::Owed;
use super::message::{Due, GivenUp, Held, Parked, Ticket, Turn, Work};
use super::shutdown::HandedBack;
use super::{Engine, Lane};
use crate::clock::{self, Instant};
use crate::error::{Failure, ReceiptError};
use crate::handler::Context;
use crate::lanes::Next;
use crate::letter::Exhausted;
use crate::observe::trace::cut;
use crate::rt::Arc;
use crate::rt::atomic::Ordering;

/// Most characters of an error kept to say why a lane waits.
const LONGEST_WHY: usize = 256;

/// The wheel's resolution: it may be early by less than this.
const TICK: Duration = Duration::from_millis(1);

/// The first wait for a dead-letter sink that refused; it doubles up to `LONGEST_SINK_WAIT`.
const SINK_WAIT: Duration = Duration::from_millis(100);
const LONGEST_SINK_WAIT: Duration = Duration::from_secs(30);

/// The one outcome of a message.
#[derive(Debug)]
pub(super) enum Outcome<M, O, E> {
    Done(O),
    DeadLettered(Failure<E>),
    Discarded(Failure<E>),
    /// Pushed out of a full lane before it was started.
    Displaced(M),
}

/// Settlements whose room has not been returned yet.
///
/// A runner that settles many messages in a row returns their room together, and always before
/// it waits for anything.
#[derive(Debug, Default)]
pub(super) struct Tally {
    done: u32,
    room: u32,
    bytes: usize,
}

/// Room to return after a lock is gone: returning it wakes senders.
#[derive(Debug, Default)]
struct Freed {
    room: usize,
    bytes: usize,
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    // ---- The one settlement -------------------------------------------------------------------

    /// Settles a message: its receipt, its count, its room.
    #[inline]
    pub(super) fn settle(
        &self,
        tally: &mut Tally,
        mut ticket: Ticket<M, O, E>,
        outcome: Outcome<M, O, E>,
    ) {
        self.return_room(tally, &mut ticket);
        let (counter, answer) = match outcome {
            Outcome::Done(answer) => {
                tally.done += 1;
                #[cfg(keylane_mutant = "double-settle")]
                self.counters.discarded.add(1);
                match ticket.debt.into_reply() {
                    Some(reply) => self.answer(reply, Ok(answer)),
                    None if std::mem::needs_drop::<O>() => self.drop_quietly(answer),
                    None => {}
                }
                return;
            }
            Outcome::DeadLettered(failure) => (
                &self.counters.dead_lettered,
                ReceiptError::DeadLettered(failure),
            ),
            Outcome::Discarded(failure) => {
                (&self.counters.discarded, ReceiptError::Failed(failure))
            }
            Outcome::Displaced(message) => {
                (&self.counters.discarded, ReceiptError::Dropped(message))
            }
        };
        match ticket.debt.into_reply() {
            Some(reply) => self.answer(reply, Err(answer)),
            None => self.drop_quietly(answer),
        }
        self.flush_room(tally);
        counter.add(1);
    }

    /// Settles a message by giving it back: through its receipt, if somebody holds that.
    pub(super) fn hand_back(
        &self,
        tally: &mut Tally,
        mut back: HandedBack<K, M>,
        mut ticket: Ticket<M, O, E>,
    ) {
        self.return_room(tally, &mut ticket);
        back.attempts = back
            .attempts
            .saturating_add(ticket.debt.load().earlier.into());
        let parked_at = ticket.parked_at;
        let reply = ticket.debt.into_reply().filter(|reply| !reply.is_closed());
        let reported = match reply {
            None => true,
            Some(reply) => {
                let attempts = back.attempts;
                let error = match back.message.take() {
                    Some(message) if !back.interrupted => {
                        ReceiptError::HandedBack { message, attempts }
                    }
                    message => ReceiptError::Interrupted(message),
                };
                match caught(|| reply.send(Err(error))) {
                    Ok(Ok(())) => false,
                    // The receipt went in this very moment.
                    Ok(Err(returned)) => {
                        back.message = returned.err().and_then(ReceiptError::into_message);
                        true
                    }
                    // It has its answer, and its waker panicked.
                    Err(_) => {
                        self.counters.panics.add(1);
                        false
                    }
                }
            }
        };
        if reported {
            self.shutdown.hand_back(parked_at, back);
        }
        self.flush_room(tally);
        self.counters.handed_back.add(1);
    }

    /// Returns what a tally holds back.
    pub(super) fn flush(&self, tally: &mut Tally) {
        self.flush_room(tally);
        let done = std::mem::take(&mut tally.done);
        if done > 0 {
            self.counters.done.add(u64::from(done));
        }
        if self.shutdown.stage() > super::Stage::Open {
            self.shutdown.nudge();
            self.end_orphaned();
        }
    }

    /// Returns the room that a tally holds back. Before the messages are counted: once all are,
    /// the end has come, and then no room may be missing.
    fn flush_room(&self, tally: &mut Tally) {
        let room = std::mem::take(&mut tally.room);
        let bytes = std::mem::take(&mut tally.bytes);
        self.give_room(room as usize, bytes);
    }

    /// Returns what a tally holds back, if it is enough to be worth it.
    #[inline]
    pub(super) fn flush_some(&self, tally: &mut Tally) {
        if tally.room >= self.settings.tally || tally.done >= self.settings.tally {
            self.flush(tally);
        }
    }

    #[inline]
    fn return_room(&self, tally: &mut Tally, ticket: &mut Ticket<M, O, E>) {
        let load = ticket.debt.load_mut();
        load.settled = true;
        if load.apart {
            self.stalled.fetch_sub(1, Ordering::Relaxed);
        } else {
            tally.room += 1;
            tally.bytes += load.weight as usize;
        }
    }

    fn answer(&self, reply: super::Reply<M, O, E>, answer: Result<O, ReceiptError<M, E>>) {
        // Waking the receipt runs the user's waker, and a receipt that is gone leaves the answer
        // to be dropped here.
        if caught(|| drop(reply.send(answer))).is_err() {
            self.counters.panics.add(1);
        }
    }

    /// Drops a value of the user's, whatever its drop does.
    pub(super) fn drop_quietly<T>(&self, value: T) {
        if dropped(value) {
            self.counters.panics.add(1);
        }
    }

    // ---- After an attempt ---------------------------------------------------------------------

    /// The head of a lane has settled: returns the turn of the next message of the key.
    #[inline]
    pub(super) fn advance(&self, key: Option<K>, hash: u64) -> Option<Turn<K, M, O, E>> {
        let key = key?;
        let (opening, next) = self.lanes.advance(hash, &key, |lane| {
            let opening = self.see_departure(lane);
            Some((opening, lane.finish()))
        })?;
        opening.carry_out();
        let parked = next?;
        Some(Turn::first(Some(key), hash, parked))
    }

    /// An attempt failed. Decides, and returns the turn of the next message if the head settled.
    pub(super) fn failed(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<K>,
        owed: Owed<M, O, E>,
        failure: Failure<E>,
    ) -> Option<Turn<K, M, O, E>> {
        let (key, attempt) = (context.key.take(), context.attempt);
        let Owed { hash, ticket, kept } = owed;
        self.count_failure(key.as_ref(), hash, attempt, &failure);
        let Some(message) = kept else {
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
                let given_up = GivenUp {
                    attempts: attempt,
                    failure,
                    refusals: 0,
                    beside: None,
                };
                let work = Work::Letter(Box::new(given_up));
                #[cfg(keylane_mutant = "early-letter")]
                let _ = (self.advance(key.clone(), hash)).map(|next| self.enqueue(next));
                Some(Turn {
                    key,
                    hash,
                    message,
                    ticket,
                    work,
                })
            }
            Exhausted::Halt if key.is_some() && !cfg!(keylane_mutant = "halt-goes-on") => {
                let why = self.why(&failure);
                let given_up = GivenUp {
                    attempts: attempt,
                    failure,
                    refusals: 0,
                    beside: None,
                };
                let work = Work::Letter(Box::new(given_up));
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
                self.drop_quietly(message);
                self.settle(tally, ticket, Outcome::Discarded(failure));
                self.advance(key, hash)
            }
        }
    }

    /// The sink refused a letter: it is brought again later, and the key waits for it.
    pub(super) fn refused(
        self: &Arc<Self>,
        tally: &mut Tally,
        turn: Turn<K, M, O, E>,
        error: String,
    ) {
        self.counters.letter_failures.add(1);
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
        key: Option<K>,
        hash: u64,
        mut held: Held<K, M, O, E>,
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
        self.hold_head(tally, &key, hash, held, |lane, held| {
            let due = Due::Lane {
                key: key.clone(),
                hash,
            };
            lane.back_off(held, until);
            self.set_lane_apart(lane, &mut freed);
            self.arm(due, until, now);
        });
        self.free(&freed);
        // The end may have come meanwhile; then the router has swept, or sweeps again for us.
        if self.shutdown.hands_back() && !cfg!(keylane_mutant = "late-backoff") {
            self.sweep_one(tally, &key, hash);
        }
    }

    #[cfg(keylane_mutant = "retry-at-tail")]
    fn retry_at_tail(self: &Arc<Self>, key: K, hash: u64, held: Held<K, M, O, E>) {
        let Held {
            message, ticket, ..
        } = held;
        let parked = Parked { message, ticket };
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
    fn halt(&self, tally: &mut Tally, key: Option<K>, hash: u64, held: Held<K, M, O, E>) {
        let Some(key) = key else { return };
        tracing::error!(
            target: "keylane",
            key = %self.shown(Some(&key), hash),
            why = %held.why,
            "a lane is halted: resume, skip or replace its head"
        );
        self.flush(tally);
        let mut freed = Freed::default();
        self.hold_head(tally, &key, hash, held, |lane, held| {
            lane.halt(held);
            // Before anybody can see the lane, and resume it.
            self.halted.fetch_add(1, Ordering::Relaxed);
            self.set_lane_apart(lane, &mut freed);
        });
        self.free(&freed);
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
        key: &K,
        hash: u64,
        held: Held<K, M, O, E>,
        put: impl FnOnce(&mut Lane<K, M, O, E>, Box<Held<K, M, O, E>>),
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

    fn retry_after(&self, attempt: u32, failure: &Failure<E>) -> Option<Duration> {
        let retry = self.settings.retry.as_ref()?;
        // `retry_if` and custom delays are the user's.
        match caught(|| retry.after(attempt, failure, dice())) {
            Ok(wait) => wait,
            Err(text) => {
                self.counters.panics.add(1);
                tracing::error!(target: "keylane", panic = %text, "a retry policy panicked");
                None
            }
        }
    }

    fn count_failure(&self, key: Option<&K>, hash: u64, attempt: u32, failure: &Failure<E>) {
        self.counters.failures.add(1);
        match failure {
            Failure::Panicked(_) => self.counters.panics.add(1),
            Failure::TimedOut(_) => self.counters.timeouts.add(1),
            Failure::Error(_) | Failure::LaneFull => {}
        }
        if tracing::enabled!(target: "keylane", tracing::Level::WARN) {
            let key = self.shown(key, hash);
            let failure = self.why(failure);
            tracing::warn!(target: "keylane", %key, attempt, %failure, "an attempt failed");
        }
    }

    /// A failure in a few words. Runs the user's `Debug`, so never under a lock.
    fn why(&self, failure: &Failure<E>) -> Box<str> {
        match caught(|| failure.to_string()) {
            Ok(text) => cut(text, LONGEST_WHY).into(),
            Err(_) => "an error whose `Debug` panics".into(),
        }
    }

    // ---- The stalled, counted apart -----------------------------------------------------------

    /// Takes a message out of the load, if the limit of the stalled allows.
    fn set_apart(&self, ticket: &mut Ticket<M, O, E>, freed: &mut Freed) -> bool {
        let load = ticket.debt.load_mut();
        if load.apart || cfg!(keylane_mutant = "stalled-counts") {
            return false;
        }
        let limit = self.settings.stalled_capacity;
        let claimed = self
            .stalled
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < limit).then_some(n + 1)
            })
            .is_ok();
        if claimed {
            load.apart = true;
            freed.room += 1;
            freed.bytes += load.weight as usize;
        }
        claimed
    }

    /// Takes a whole stalled lane out of the load. Under the shard's lock.
    ///
    /// From the back: what is already apart is in front, from an earlier stall, so that each
    /// message is looked at once and not once for every retry before it.
    fn set_lane_apart(&self, lane: &mut Lane<K, M, O, E>, freed: &mut Freed) {
        for parked in lane.parked_mut().rev() {
            if !self.set_apart(&mut parked.ticket, freed) {
                break;
            }
        }
        if let Some(head) = lane.head_mut() {
            self.set_apart(&mut head.ticket, freed);
        }
    }

    /// A message arrived in a stalled lane: it is no load either. Under the shard's lock.
    pub(super) fn park_stalled(&self, parked: &mut Parked<M, O, E>) -> (usize, usize) {
        let mut freed = Freed::default();
        self.set_apart(&mut parked.ticket, &mut freed);
        (freed.room, freed.bytes)
    }

    /// Takes a lane that is above its limit out of the load. Under the shard's lock.
    pub(super) fn set_above_apart(&self, lane: &mut Lane<K, M, O, E>) -> (usize, usize) {
        let mut freed = Freed::default();
        self.set_lane_apart(lane, &mut freed);
        (freed.room, freed.bytes)
    }

    fn free(&self, freed: &Freed) {
        self.give_room(freed.room, freed.bytes);
    }

    /// Gives room back to senders.
    pub(super) fn give_room(&self, room: usize, bytes: usize) {
        if room > 0 {
            shielded(|| self.capacity.add_permits(room));
        }
        if bytes > 0
            && let Some(semaphore) = &self.bytes
        {
            shielded(|| semaphore.add_permits(bytes));
        }
    }

    // ---- What a lane handle decides -----------------------------------------------------------

    /// The halted head goes out again, as a first attempt.
    pub(crate) fn resume(self: &Arc<Self>, key: &K, hash: u64) -> bool {
        let head = self
            .lanes
            .with(hash, key, |lane| lane.is_halted().then(|| lane.resume()));
        let Some(Some(mut head)) = head else {
            return false;
        };
        let attempts = u8::try_from(attempts_of(&head.work)).unwrap_or(u8::MAX);
        let load = head.ticket.debt.load_mut();
        load.earlier = load.earlier.saturating_add(attempts);
        self.restart(key, hash, *head);
        true
    }

    /// The halted head goes out again with another message; the old one comes back.
    pub(crate) fn replace(
        self: &Arc<Self>,
        key: &K,
        hash: u64,
        message: M,
        weight: u32,
    ) -> Result<M, M> {
        let head = self
            .lanes
            .with(hash, key, |lane| lane.is_halted().then(|| lane.resume()));
        let Some(Some(head)) = head else {
            return Err(message);
        };
        let mut head = *head;
        let old = std::mem::replace(&mut head.message, message);
        self.reweigh(&mut head.ticket, weight);
        self.restart(key, hash, head);
        Ok(old)
    }

    /// Another message, of another size, stands for this ticket from now on.
    fn reweigh(&self, ticket: &mut Ticket<M, O, E>, weight: u32) {
        let load = ticket.debt.load_mut();
        load.earlier = 0;
        if let (false, Some(bytes)) = (load.apart, &self.bytes) {
            match weight.checked_sub(load.weight) {
                None => bytes.add_permits((load.weight - weight) as usize),
                Some(more) => match bytes.try_acquire_many(more) {
                    Ok(permit) => permit.forget(),
                    // It was let in once and is not turned away now; it gives back what it took.
                    Err(_) => return,
                },
            }
        }
        load.weight = weight;
    }

    fn restart(self: &Arc<Self>, key: &K, hash: u64, head: Held<K, M, O, E>) {
        self.halted.fetch_sub(1, Ordering::Relaxed);
        let Held {
            message,
            ticket,
            work,
            ..
        } = head;
        self.drop_quietly(work);
        let work = Work::Attempt(1);
        self.enqueue(Turn {
            key: Some(key.clone()),
            hash,
            message,
            ticket,
            work,
        });
    }

    /// The halted head settles as failed; the key goes on behind it.
    pub(crate) fn skip(self: &Arc<Self>, key: &K, hash: u64) -> bool {
        let skipped = self.lanes.advance(hash, key, |lane| {
            lane.is_halted().then(|| {
                let opening = self.see_departure(lane);
                let (head, next) = lane.skip();
                ((head, opening), next)
            })
        });
        let Some(((head, opening), next)) = skipped else {
            return false;
        };
        opening.carry_out();
        self.halted.fetch_sub(1, Ordering::Relaxed);
        let Held {
            message,
            ticket,
            work,
            ..
        } = *head;
        self.drop_quietly(message);
        let failure = match work {
            Work::Letter(given_up) => given_up.failure,
            Work::Attempt(_) => unreachable!("a halted head was given up on"),
        };
        let mut tally = Tally::default();
        self.settle(&mut tally, ticket, Outcome::Discarded(failure));
        self.flush(&mut tally);
        if let Some(parked) = next {
            self.enqueue(Turn::first(Some(key.clone()), hash, parked));
        }
        true
    }

    // ---- Handing back -------------------------------------------------------------------------

    /// Hands back a turn that will not start, and everything behind it.
    pub(super) fn hand_back_turn(&self, turn: Turn<K, M, O, E>) {
        let mut tally = Tally::default();
        let Turn {
            key,
            hash,
            message,
            ticket,
            work,
        } = turn;
        let attempts = attempts_of(&work);
        let owner = key.as_ref().and_then(cloned).or_else(|| beside(&work));
        self.drop_quietly(work);
        let back = HandedBack::idle(owner, message, attempts);
        self.hand_back(&mut tally, back, ticket);
        self.release_handing_back(&mut tally, key, hash);
        self.flush(&mut tally);
    }

    /// Hands back everything behind a head that is out and has just settled, and its lane.
    pub(super) fn release_handing_back(&self, tally: &mut Tally, key: Option<K>, hash: u64) {
        let mut key = key;
        // Also run while a panic of the key's own `Eq` unwinds, and must not be the second one.
        while let Some(turn) = self.try_advance(key.take(), hash) {
            let back = HandedBack::idle(turn.key.as_ref().and_then(cloned), turn.message, 0);
            self.hand_back(tally, back, turn.ticket);
            key = turn.key;
        }
    }

    fn try_advance(&self, key: Option<K>, hash: u64) -> Option<Turn<K, M, O, E>> {
        caught(|| self.advance(key, hash)).unwrap_or_else(|_| {
            self.count_lost();
            None
        })
    }

    /// A panic of the key's own `Eq`, `Clone` or `Drop` has ended here: what it cost is counted.
    pub(super) fn count_lost(&self) {
        self.shutdown.advance(super::Stage::Aborting);
        self.counters.handed_back.add(super::message::take_lost());
    }

    fn hand_back_held(&self, tally: &mut Tally, key: Option<K>, held: Held<K, M, O, E>) {
        let Held {
            message,
            ticket,
            work,
            ..
        } = held;
        let attempts = attempts_of(&work);
        let owner = key.or_else(|| beside(&work));
        self.drop_quietly(work);
        self.hand_back(tally, HandedBack::idle(owner, message, attempts), ticket);
    }

    /// Hands back one stalled lane.
    fn sweep_one(&self, tally: &mut Tally, key: &K, hash: u64) {
        let swept = self.lanes.advance(hash, key, |lane| {
            lane.is_stalled().then(|| {
                let opening = self.remove_gate(lane);
                let halted = lane.is_halted();
                let (head, parked) = lane.hand_back();
                ((head, parked, opening, halted), Next::Remove)
            })
        });
        if let Some(((head, parked, opening, halted), _)) = swept {
            opening.carry_out();
            self.hand_back_lane(tally, Some(key), head, parked, halted);
        }
        self.flush(tally);
    }

    /// Hands back what lanes hold: all of it, or only what is halted.
    ///
    /// A lane whose head is out stays, empty, until the head comes back.
    pub(super) fn sweep(&self, only_halted: bool) {
        let mut swept = Vec::new();
        self.lanes.sweep(|key, _, lane| {
            if only_halted && !lane.is_halted() {
                return true;
            }
            let opening = self.remove_gate(lane);
            let halted = lane.is_halted();
            let (head, parked) = lane.hand_back();
            let stays = head.is_none();
            swept.push((cloned(key), head, parked, opening, halted));
            stays
        });
        let mut tally = Tally::default();
        for (key, head, parked, opening, halted) in swept {
            opening.carry_out();
            self.hand_back_lane(&mut tally, key.as_ref(), head, parked, halted);
        }
        self.flush(&mut tally);
    }

    fn hand_back_lane(
        &self,
        tally: &mut Tally,
        key: Option<&K>,
        head: Option<Box<Held<K, M, O, E>>>,
        parked: Vec<Parked<M, O, E>>,
        halted: bool,
    ) {
        if halted {
            self.halted.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(head) = head {
            self.hand_back_held(tally, key.and_then(cloned), *head);
        }
        for Parked { message, ticket } in parked {
            let back = HandedBack::idle(key.and_then(cloned), message, 0);
            self.hand_back(tally, back, ticket);
        }
    }

    /// Lets every sender that waits at a gate see that the dispatcher is closed.
    pub(super) fn open_gates(&self) {
        let mut openings = Vec::new();
        self.lanes.sweep(|_, _, lane| {
            openings.push(self.remove_gate(lane));
            true
        });
        openings.into_iter().for_each(Opening::carry_out);
    }

    /// Hands back the messages without a lane that wait, and forgets all timers.
    pub(super) fn clear_timers(&self) {
        self.timers.clear();
        let mut tally = Tally::default();
        for held in self.keyless.take_all() {
            self.hand_back_held(&mut tally, None, held);
        }
        self.flush(&mut tally);
    }

    /// Arms a timer, and makes sure that the router waits for it.
    fn arm(&self, due: Due<K>, until: Instant, now: Instant) {
        if self.timers.arm(due, until, now) {
            self.shutdown.nudge();
        }
    }

    /// What a timer brought: the turn of a head whose wait is over, if it is still there.
    pub(super) fn due(&self, due: Due<K>, now: Instant) -> Option<Turn<K, M, O, E>> {
        match due {
            Due::Keyless(number) => Some(Turn::again(None, 0, self.keyless.take(number)?)),
            Due::Lane { key, hash } => {
                let head = self.lanes.with(hash, &key, |lane| {
                    let until = lane.backs_off_until()?;
                    if until > now + TICK {
                        // The wheel has a longest wait; this head waits longer.
                        self.arm(
                            Due::Lane {
                                key: key.clone(),
                                hash,
                            },
                            until,
                            now,
                        );
                        return None;
                    }
                    Some(lane.due())
                });
                Some(Turn::again(Some(key), hash, *head??))
            }
        }
    }

    /// Whether what a timer brought is a retry, and not a letter.
    pub(super) fn is_retry(&self, due: &Due<K>) -> bool {
        let is_attempt = |held: &Held<K, M, O, E>| matches!(held.work, Work::Attempt(_));
        match due {
            Due::Keyless(number) => self.keyless.peek(*number, is_attempt).unwrap_or(false),
            Due::Lane { key, hash } => self
                .lanes
                .peek(*hash, key, |lane| lane.head().is_some_and(is_attempt))
                .unwrap_or(false),
        }
    }
}

/// How often a handler was started for this work before.
fn attempts_of<K, E>(work: &Work<K, E>) -> u32 {
    match work {
        Work::Attempt(next) => next - 1,
        Work::Letter(given_up) => given_up.attempts,
    }
}

/// The key of a letter that no lane waits for.
fn beside<K: Clone, E>(work: &Work<K, E>) -> Option<K> {
    match work {
        Work::Attempt(_) => None,
        Work::Letter(given_up) => given_up.beside.as_ref().and_then(cloned),
    }
}

/// A number from 0 to 1 for jitter; it need not be more than spread.
fn dice() -> f64 {
    use std::cell::Cell;
    use std::hash::{BuildHasher, RandomState};
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one("jitter"));
    }
    // SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
    let next = STATE.try_with(|state| {
        state.set(state.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut bits = state.get();
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    });
    // A thread that is ending has no state any more.
    let bits = next.unwrap_or(1 << 63);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
