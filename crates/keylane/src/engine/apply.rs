//! Applies the decisions of lanes.
//!
//! A lane decides under the lock of its shard and writes what follows into
//! [`Effects`](crate::lanes::Effects). [`Engine::step`] applies, under that lock, what must be seen
//! together with the decision; once the lock is released, it returns room and wakes the router.
//! [`Engine::apply`] applies the rest: it wakes senders, settles messages, arms timers, asks the
//! version store, and returns what goes into the ready queue.

use super::message::{Envelope, Held, Job, Parked, Queued, RetryDue, WakeUp, Work};
use super::outcome::{Outcome, Tally};
use super::room::{Freed, change_gauge};
use super::{Engine, Lane, Stage};
use crate::clock::{self, Instant};
use crate::discipline::Forgotten;
use crate::error::Failure;
use crate::lanes::{Due, Effects, Few, Gap, Item, Keep, Left, Opening, Out, Store, Taken};
use crate::rate::Remembered;
use crate::types::{Spec, Types};
use crate::unwind::{caught, shielded};

/// The decision of a lane of this engine.
pub(super) type LaneEffects<T> = Effects<Parked<T>, Held<T>, super::Gate>;

/// What is seen under the lock of a shard, and carried out once it is released. Most steps have
/// nothing of it.
#[must_use = "room, the router and what keys remember wait for it"]
pub(super) struct Unlocked<T: Types> {
    freed: Freed,
    /// The lane has drained up to its watermark.
    drained: bool,
    /// Keys to drop.
    forgotten: Option<Forgotten<T::Key>>,
    /// When rates that are remembered are to be forgotten.
    forget_at: Option<u64>,
}

impl<T: Types> Default for Unlocked<T> {
    fn default() -> Self {
        Self {
            freed: Freed::default(),
            drained: false,
            forgotten: None,
            forget_at: None,
        }
    }
}

impl<T: Types> Unlocked<T> {
    fn is_some(&self) -> bool {
        self.freed != Freed::default()
            || self.drained
            || self.forgotten.is_some()
            || self.forget_at.is_some()
    }
}

impl<T: Spec> Engine<T> {
    /// Takes a step in the lane of a key, if there is one. What follows is in `effects`.
    #[inline]
    pub(super) fn step(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) -> bool {
        let make = || None;
        self.step_in(key, hash, now, make, effects, decide)
    }

    /// Takes a step in the lane of a key, which is made if there is none.
    #[inline]
    pub(super) fn step_or_make(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) {
        let make = || Some(Lane::<T>::empty(self.recall_rate(hash, now)));
        self.step_in(key, hash, now, make, effects, decide);
    }

    #[inline]
    fn step_in(
        &self,
        key: &T::Key,
        hash: u64,
        now: Instant,
        make: impl FnOnce() -> Option<Lane<T>>,
        effects: &mut LaneEffects<T>,
        decide: impl FnOnce(&mut Lane<T>, &mut LaneEffects<T>),
    ) -> bool {
        let mut unlocked = None;
        let found = self.lanes.step(hash, key, make, |lane| {
            decide(lane, effects);
            unlocked = self.apply_locked(lane, key, hash, now, effects);
            match effects.removes {
                true => Keep::Remove,
                false => Keep::Stay,
            }
        });
        if let Some(unlocked) = unlocked {
            self.apply_unlocked(unlocked);
        }
        found
    }

    /// Applies what must be seen together with the decision. Under the shard's lock.
    #[inline]
    pub(super) fn apply_locked(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
    ) -> Option<Unlocked<T>> {
        if effects.expires_at.is_some()
            && self.clocks.wake_ups.len() >= self.settings.capacity.saturating_mul(2)
        {
            // Timers outlive what they were armed for. With too many of them, messages settle as
            // expired when a runner takes them, and not at their deadline.
            effects.expires_at = None;
            lane.unwatch();
        }
        // A plain lane has no version, rate or watermark.
        if effects.is_plain() && lane.is_plain() {
            return None;
        }
        self.apply_more_locked(lane, key, hash, now, effects)
    }

    #[inline(never)]
    fn apply_more_locked(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        effects: &mut LaneEffects<T>,
    ) -> Option<Unlocked<T>> {
        let mut unlocked = Unlocked::default();
        self.room.stall(lane, effects.stall, &mut unlocked.freed);
        change_gauge(&self.halted, effects.halted);
        change_gauge(&self.slow_path.paused, effects.paused);
        self.room.count_full(hash, effects.full);
        let starts = match &effects.out {
            Out::Message(item) => Some(item),
            _ => None,
        };
        unlocked.drained = match effects.removes {
            true => lane.has_watermark(),
            false => lane.passes_watermark(starts),
        };
        if unlocked.drained {
            // Under the lock, so that a lane without its watermark has always been reported.
            self.note_drained(key);
        }
        if effects.removes {
            let memory = lane.memory();
            unlocked.forget_at = self.remember_rate(hash, memory.tat, now);
            unlocked.forgotten = self.remember_version(key, hash, memory.version, now);
        }
        unlocked.is_some().then_some(unlocked)
    }

    /// Carries out what was seen under the lock.
    pub(super) fn apply_unlocked(&self, unlocked: Unlocked<T>) {
        let Unlocked {
            freed,
            drained,
            forgotten,
            forget_at,
        } = unlocked;
        self.room.free(freed);
        if drained {
            self.shutdown.wake_router();
        }
        if forgotten.is_some() {
            self.drop_quietly(forgotten);
        }
        if let Some(at) = forget_at {
            self.forget_rates_at(at);
        }
    }

    /// Records the last version of a key whose lane is removed. Under the shard's lock, so that the
    /// next lane of the key knows it.
    fn remember_version(
        &self,
        key: &T::Key,
        hash: u64,
        version: Option<u64>,
        now: Instant,
    ) -> Option<Forgotten<T::Key>> {
        let versions = self.settings.discipline.versions()?;
        Some(versions.record(key, hash, version?, now))
    }

    /// Remembers the rate of a key whose lane is removed. Returns when to forget it.
    fn remember_rate(&self, hash: u64, tat: u64, now: Instant) -> Option<u64> {
        let rates = self.rates.as_ref().filter(|_| tat > 0)?;
        match rates.remember(hash, tat, self.clocks.stamp(now)) {
            Remembered::Nothing => None,
            Remembered::ForgetAt(at) => Some(at),
        }
    }

    /// The remembered rate of a key that has no lane.
    fn recall_rate(&self, hash: u64, now: Instant) -> u64 {
        let rates = self.rates.as_ref();
        rates.map_or(0, |rates| rates.recall(hash, self.clocks.stamp(now)))
    }

    /// Applies the other effects of a decision. Returns what goes into the ready queue. Letters for
    /// messages that left without a lane to wait for them go into `letters`.
    #[inline]
    pub(super) fn apply(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
        letters: &mut Vec<Queued<T>>,
    ) -> Option<Queued<T>> {
        if effects.has_others()
            && let Some(pair) = self.apply_others(tally, &key, hash, effects, letters)
        {
            return self.merge(tally, key, hash, pair, letters);
        }
        if let Some(at) = effects.expires_at {
            let (key, due) = (key.clone(), Due::Expiry(at));
            self.arm_wake_up(WakeUp::Lane { key, hash, due }, at);
        }
        if effects.holds && self.shutdown.stage() > Stage::Open {
            return self.apply_at_end(tally, key, hash, letters);
        }
        self.let_go(key, hash, effects)
    }

    /// What goes into the ready queue.
    #[inline]
    fn let_go(&self, key: T::Key, hash: u64, effects: &mut LaneEffects<T>) -> Option<Queued<T>> {
        match std::mem::replace(&mut effects.out, Out::Nothing) {
            Out::Nothing => {
                if std::mem::needs_drop::<T::Key>() {
                    self.drop_quietly(key);
                }
                None
            }
            Out::Lane { class } => Some(Queued::Lane { key, hash, class }),
            Out::Message(parked) => Some(Job::first(Some(key), hash, parked).into()),
            Out::Head {
                head,
                restarts,
                counts,
            } => Some(self.let_out(key, hash, *head, restarts, counts).into()),
        }
    }

    /// Applies what followed from a head that settled, or from a lane that was asked.
    #[inline]
    pub(super) fn follow(
        &self,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> Option<Queued<T>> {
        if effects.has_others() || effects.holds || effects.expires_at.is_some() {
            return self.follow_others(key, hash, effects);
        }
        self.let_go(key, hash, effects)
    }

    #[inline(never)]
    fn follow_others(
        &self,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> Option<Queued<T>> {
        let (mut tally, mut letters) = (Tally::default(), Vec::new());
        let queued = self.apply(&mut tally, key, hash, effects, &mut letters);
        assert!(letters.is_empty(), "only what comes in can be turned away");
        if !tally.is_empty() {
            self.flush(&mut tally);
        }
        queued
    }

    /// Applies all but what goes into the ready queue. Returns two messages that are to be merged.
    #[inline(never)]
    fn apply_others(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
        letters: &mut Vec<Queued<T>>,
    ) -> Option<(Parked<T>, Parked<T>)> {
        let overflows = effects.overflows();
        let rare = effects.rare.take().map(|rare| *rare);
        let rare = rare.unwrap_or_default();
        open(std::mem::replace(&mut effects.opening, Opening::Nothing));
        if let Some(accepted_at) = rare.stalled_since {
            self.note_stalled(hash, accepted_at);
        }
        self.arm_timers(key, hash, effects.wake, rare.gap_until);
        if effects.stale {
            self.clocks.outdate();
        }
        if overflows {
            self.notify_overflowed(key);
        }
        if let Some(gap) = rare.gap {
            self.report_gap(key, hash, gap);
        }
        if let Some((head, taken)) = rare.taken {
            self.settle_taken(tally, *head, taken);
        }
        for (parked, why) in std::mem::replace(&mut effects.left, Few::None) {
            let letter = self.settle_left(tally, key, hash, parked, why);
            letters.extend(letter.map(Queued::Job));
        }
        for body in rare.bodies {
            self.drop_quietly(body);
        }
        match rare.store {
            None => {}
            Some(Store::Load) => self.ask_store(key.clone(), hash, None),
            Some(Store::Record(version)) => self.ask_store(key.clone(), hash, Some(version)),
        }
        rare.merge
    }

    /// Handles a lane that begins to wait during the shutdown: a batch waits for no more messages,
    /// and what waits for something that will not come is handed back.
    #[cold]
    fn apply_at_end(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        letters: &mut Vec<Queued<T>>,
    ) -> Option<Queued<T>> {
        // The router may have swept before the lane began to wait.
        let is_over = self.shutdown.hands_back();
        let is_stuck = self.shutdown.is_exhausted();
        if is_over || is_stuck {
            self.evict_one(tally, &key, hash);
        }
        let mut effects = Effects::new();
        if !self.step(&key, hash, clock::now(), &mut effects, Lane::<T>::close) {
            return None;
        }
        self.apply(tally, key, hash, &mut effects, letters)
    }

    /// Applies a decision that neither the router nor a runner has made, and enqueues what follows.
    pub(super) fn apply_and_enqueue(
        self: &super::Arc<Self>,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) {
        let mut letters = Vec::new();
        let out = self.apply(tally, key, hash, effects, &mut letters);
        for queued in letters.into_iter().chain(out) {
            self.enqueue(queued);
        }
    }

    fn arm_timers(
        &self,
        key: &T::Key,
        hash: u64,
        wake: Option<Due>,
        gap_until: Option<(Instant, Instant)>,
    ) {
        match wake {
            None => {}
            Some(Due::Expiry(_)) => unreachable!("it has a field of its own"),
            Some(Due::Backoff(until)) => {
                let key = key.clone();
                self.arm_retry(RetryDue::Lane { key, hash, until }, until);
            }
            Some(due @ (Due::Wait(at) | Due::Gap(at))) => {
                self.wake_at(key, hash, due, at);
            }
        }
        if let Some((since, until)) = gap_until {
            self.wake_at(key, hash, Due::Gap(since), until);
        }
    }

    fn wake_at(&self, key: &T::Key, hash: u64, due: Due, at: Instant) {
        let key = key.clone();
        self.arm_wake_up(WakeUp::Lane { key, hash, due }, self.clocks.stamp(at));
    }

    /// Gives a message that left its lane its outcome, or makes it a letter.
    fn settle_left(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        parked: Parked<T>,
        why: Left,
    ) -> Option<Job<T>> {
        let Parked { message, envelope } = parked;
        let outcome = match why {
            Left::Expired => Outcome::Expired(message),
            Left::Duplicate => Outcome::Duplicate(message),
            Left::Declined => Outcome::Declined(message),
            Left::Superseded => Outcome::Superseded(message),
            Left::Purged => Outcome::Purged(message),
            Left::Displaced => {
                self.probe.counters.overflowed.add(1);
                Outcome::Displaced(message)
            }
            Left::Skipped => {
                self.drop_quietly(message);
                Outcome::Discarded(Failure::Skipped)
            }
            Left::Refused => {
                self.probe.counters.overflowed.add(1);
                let refused = Parked { message, envelope };
                return self.refuse(tally, key.clone(), hash, refused);
            }
            Left::BehindGap => {
                return Some(Job {
                    key: None,
                    hash,
                    message,
                    envelope,
                    work: Work::letter(0, Failure::Gap, Some(key.clone())),
                });
            }
        };
        self.settle(tally, envelope, outcome);
        None
    }

    /// Settles a head that an operator took out of its lane.
    fn settle_taken(&self, tally: &mut Tally, head: Held<T>, taken: Taken) {
        let Held {
            message,
            envelope,
            work,
            ..
        } = head;
        let outcome = match taken {
            Taken::Purged => {
                self.drop_quietly(work);
                Outcome::Purged(message)
            }
            Taken::Skipped => {
                self.drop_quietly(message);
                Outcome::Discarded(match work {
                    Work::Letter(given_up) => given_up.failure,
                    Work::Entered | Work::Attempt(_) => Failure::Skipped,
                })
            }
        };
        self.settle(tally, envelope, outcome);
    }

    /// Lets out a job that its lane held.
    fn let_out(
        &self,
        key: T::Key,
        hash: u64,
        mut head: Held<T>,
        restarts: bool,
        counts: bool,
    ) -> Job<T> {
        if restarts {
            let attempts = u8::try_from(head.work.attempts()).unwrap_or(u8::MAX);
            let load = head.envelope.obligation.charge_mut();
            load.earlier = load.earlier.saturating_add(attempts);
            let work = std::mem::replace(&mut head.work, Work::Attempt(1));
            self.drop_quietly(work);
        } else if counts && head.work.is_attempt() {
            self.probe.counters.retries.add(1);
        }
        Job::again(Some(key), hash, head)
    }

    /// Merges two messages outside of the lane, because the merge function is user code. No other
    /// message comes in meanwhile: only the router places messages.
    fn merge(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        (waited, newcomer): (Parked<T>, Parked<T>),
        letters: &mut Vec<Queued<T>>,
    ) -> Option<Queued<T>> {
        let merge = self.settings.discipline.merge();
        let merge = merge.expect("only lanes that merge have something to merge");
        let survivor = match caught(|| merge(&waited.message, &newcomer.message)) {
            Ok(message) => {
                let Envelope {
                    accepted_at,
                    obligation,
                } = waited.envelope;
                let mut envelope = newcomer.envelope;
                envelope.accepted_at = accepted_at;
                envelope.obligation.absorb_older(obligation);
                self.drop_quietly(waited.message);
                self.drop_quietly(newcomer.message);
                Parked { message, envelope }
            }
            Err(text) => {
                self.probe.counters.panics.add(1);
                let failure = Failure::Panicked(text);
                self.drop_quietly(newcomer.message);
                self.settle(tally, newcomer.envelope, Outcome::Discarded(failure));
                waited
            }
        };
        let now = clock::now();
        let mut effects = Effects::new();
        self.step_or_make(&key, hash, now, &mut effects, |lane, effects| {
            lane.offer_merged(survivor, now, &self.rules, self.lanes.spares(), effects);
        });
        self.apply(tally, key, hash, &mut effects, letters)
    }

    fn forget_rates_at(&self, at: u64) {
        self.arm_wake_up(WakeUp::Forget, at);
    }

    /// The time has come to forget rates that say nothing any more.
    pub(super) fn forget_rates(&self, now: Instant) {
        let Some(rates) = &self.rates else { return };
        let (gate, next) = rates.forget(self.clocks.stamp(now));
        if let Some(gate) = gate {
            shielded(|| gate.close());
        }
        if let Remembered::ForgetAt(at) = next {
            self.forget_rates_at(at);
        }
    }

    /// Notifies the subscribers which versions are missing.
    fn report_gap(&self, key: &T::Key, hash: u64, gap: Gap) {
        tracing::warn!(
            target: "keylane",
            key = %self.shown(Some(key), hash),
            first = gap.first,
            last = gap.last,
            "versions are missing"
        );
        self.notify_gap(key, gap.first, gap.last);
        let halts = self.rules.sequence().is_some_and(|rules| rules.halts());
        if halts {
            let why = || format!("versions {} to {} are missing", gap.first, gap.last);
            self.notify_halted(key, self.is_watched().then(|| (0, why())));
        }
    }
}

/// Wakes senders that wait at the gate of a lane.
pub(super) fn open(opening: Opening<super::Gate>) {
    match opening {
        Opening::Nothing => {}
        Opening::Grant(gate, room) => shielded(|| gate.add_permits(room)),
        Opening::Close(gate) => shielded(|| gate.close()),
    }
}

impl<T: Types> Item for Parked<T> {
    type Body = T::Message;

    fn accepted_at(&self) -> u64 {
        self.envelope.accepted_at
    }

    fn class(&self) -> u8 {
        self.envelope.obligation.charge().class
    }

    fn version(&self) -> u64 {
        self.envelope.obligation.version()
    }

    fn not_before(&self) -> Option<Instant> {
        self.envelope.obligation.options()?.not_before
    }

    fn expires_at(&self) -> Option<u64> {
        self.envelope.obligation.expires_at()
    }

    fn merged_len(&self) -> usize {
        self.envelope
            .obligation
            .options()
            .map_or(0, |options| options.merged.len())
    }

    fn absorb_older(&mut self, older: Self) -> T::Message {
        self.envelope
            .obligation
            .absorb_older(older.envelope.obligation);
        older.message
    }

    fn absorb_newer(&mut self, newer: Self) -> T::Message {
        self.envelope
            .obligation
            .absorb_newer(newer.envelope.obligation);
        newer.message
    }

    fn inherit_merged(&mut self, older: &mut Self) {
        if let Some(merged) = older.envelope.obligation.take_merged() {
            self.envelope.obligation.options_mut().merged = merged;
        }
    }

    fn set_members(&mut self, members: Vec<Self>) {
        self.envelope.obligation.options_mut().members = members;
    }
}
