//! What a lane that thinks lets start: asked when a runner has time for it, and not before.
//!
//! Everything here runs under the lane's shard lock but [`Engine::ask`], which takes the lock, and
//! carries out afterwards what must not happen under it.

use std::time::Duration;

use super::apart::Freed;
use super::gate::Opening;
use super::message::{Parked, Queued, Rouse, Turn};
use super::settle::{Outcome, Tally};
use super::verdict::TICK;
use super::{Batch, Engine, Lane};
use crate::clock::{self, Instant};
use crate::discipline::{Forgotten, Mode, OnGap, Sequencing};
use crate::lanes::{Next, Rest};
use crate::types::{Spec, Types};

/// What is to be done once the shard's lock is gone.
#[must_use = "messages, room and senders wait for it"]
pub(super) struct After<T: Types> {
    pub(super) expired: Vec<Parked<T>>,
    pub(super) freed: Freed,
    pub(super) opening: Opening,
    /// When the oldest message was parked that may wait for long now.
    pub(super) stalled: Option<u64>,
    /// The store is to record this version of the key.
    pub(super) records: Option<u64>,
    /// The lane rests: if it is the end, somebody must hand back what is in it.
    pub(super) rests: bool,
}

impl<T: Types> After<T> {
    pub(super) fn new() -> Self {
        Self {
            expired: Vec::new(),
            freed: Freed::default(),
            opening: Opening::Nothing,
            stalled: None,
            records: None,
            rests: false,
        }
    }
}

impl<T: Spec> Engine<T> {
    /// The settings of lanes that sequence.
    pub(super) fn sequencing(&self) -> Option<&Sequencing<T::Key>> {
        self.settings.discipline.sequencing()
    }

    /// Asks a lane that was called for its next turn, which starts at once.
    pub(super) fn ask(&self, key: T::Key, hash: u64) -> Option<Turn<T>> {
        let now = clock::now();
        let mut after = After::new();
        let mut forgotten = None;
        let asked = self.lanes.advance(hash, &key, |lane| {
            let next = self.pick(lane, &key, hash, now, &mut after);
            forgotten = self.see_next(lane, &key, hash, now, &next, &mut after);
            Some((self.passes_bar(lane, &key, &next), next))
        });
        self.carry_out(after, &key, hash);
        self.drop_quietly(forgotten);
        let (drained, next) = asked?;
        if drained {
            self.tell_drained();
        }
        Some(Turn::first(Some(key), hash, next?))
    }

    /// The call of a lane, in the class of what it is about to start.
    pub(super) fn called(&self, key: T::Key, hash: u64) -> Queued<T> {
        let mut class = 0;
        if self.settings.classes > 1 {
            let first = self.lanes.peek(hash, &key, |lane| {
                lane.oldest_parked()
                    .map(|parked| parked.ticket.debt.load().class)
            });
            class = first.flatten().unwrap_or(0);
        }
        Queued::Call { key, hash, class }
    }

    /// Does what had to wait for the lock to go.
    pub(super) fn carry_out(&self, after: After<T>, key: &T::Key, hash: u64) {
        let After {
            expired,
            freed,
            opening,
            stalled,
            records,
            rests,
        } = after;
        opening.carry_out();
        self.free(&freed);
        if let Some(parked_at) = stalled {
            self.see_stalled(hash, parked_at);
        }
        if records.is_some() && !cfg!(keylane_mutant = "unrecorded") {
            self.load(key.clone(), hash, records);
        }
        if !expired.is_empty() {
            let mut tally = Tally::default();
            for Parked { message, ticket } in expired {
                self.settle(&mut tally, ticket, Outcome::Expired(message));
            }
            self.flush(&mut tally);
        }
        // The end may have come meanwhile; then the router has swept, or sweeps again for us.
        if rests && (self.shutdown.hands_back() || self.shutdown.is_exhausted()) {
            self.sweep_one(&mut Tally::default(), key, hash);
        }
    }

    /// Remembers where the key of a lane stands that is about to go, empty. Under the shard's lock, so
    /// that the next lane of the key knows it.
    ///
    /// Everything in line has settled by then, in whatever way: a version that was given up on, or taken
    /// out by an operator, does not come again.
    pub(super) fn remember(
        &self,
        lane: &Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
    ) -> Option<Forgotten<T::Key>> {
        let sequencing = self.sequencing()?;
        let passed = lane.extra()?.sequencer.as_ref()?.passed()?;
        Some(sequencing.versions.record(key, hash, passed, now))
    }

    /// The head of a lane that thinks has settled. Whoever takes its call asks what to run: that may
    /// be later, and by then the answer may be another one.
    // Not into the way of plain lanes.
    #[inline(never)]
    pub(super) fn advance_thinking(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let now = clock::now();
        let mut forgotten = None;
        let mut after = After::new();
        let mut calls = false;
        let advanced = self.lanes.advance(hash, &key, |lane| {
            lane.finish_calling();
            calls = lane.parked_len() > 0;
            let next = match calls {
                true => Next::Stay,
                false => self.pick(lane, &key, hash, now, &mut after),
            };
            forgotten = self.see_next(lane, &key, hash, now, &next, &mut after);
            Some((self.passes_bar(lane, &key, &next), next))
        });
        self.carry_out(after, &key, hash);
        self.drop_quietly(forgotten);
        if advanced.is_some_and(|(drained, _)| drained) {
            self.tell_drained();
        }
        calls.then(|| self.called(key, hash))
    }

    /// Under the shard's lock: what the answer of a lane means for those at its gate, and for what its
    /// key remembers.
    fn see_next(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        next: &Next<Parked<T>>,
        after: &mut After<T>,
    ) -> Option<Forgotten<T::Key>> {
        match next {
            Next::Remove => {
                after.opening = self.remove_gate(lane);
                if cfg!(keylane_mutant = "forgetful-lane") {
                    return None;
                }
                self.remember(lane, key, hash, now)
            }
            Next::Start(_) | Next::Stay => {
                after.opening = self.open_or_renew_gate(lane);
                None
            }
        }
    }

    /// Decides what a lane that was called lets start.
    fn pick(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        after: &mut After<T>,
    ) -> Next<Parked<T>> {
        if lane.is_paused() {
            return self.rest(lane, key, hash, (Rest::Paused, None), now, after);
        }
        while let Some(front) = lane.oldest_parked() {
            if front.ticket.debt.is_expired(now) {
                after.expired.extend(lane.take_parked());
                if lane.parked_len() == 0
                    && let Some(extra) = lane.extra_if_any()
                {
                    // They went with it.
                    extra.merged = 0;
                }
                continue;
            }
            if let Some(until) = front.ticket.debt.not_before(now) {
                return self.rest(lane, key, hash, (Rest::Delay, Some(until)), now, after);
            }
            break;
        }
        if lane.parked_len() == 0 {
            return self.nothing_parked(lane, key, hash, now, after);
        }
        if let Some(until) = self.lingers(lane, now) {
            return self.rest(lane, key, hash, (Rest::Linger, Some(until)), now, after);
        }
        if let Some(limiter) = &self.settings.rate_per_key
            && let Err(at) = limiter.ask(&mut lane.extra_mut().tat, self.stamp(now))
        {
            let until = self.moment(at, now);
            return self.rest(lane, key, hash, (Rest::Rate, Some(until)), now, after);
        }
        self.start_parked(lane, now)
    }

    /// The first of the parked, and whatever starts with it, are out from here on.
    fn start_parked(&self, lane: &mut Lane<T>, now: Instant) -> Next<Parked<T>> {
        let Some(mut head) = lane.pick() else {
            return Next::Remove;
        };
        if let Some(extra) = lane.extra_if_any() {
            extra.merged = 0;
            extra.lingered = false;
        }
        if let Some(batch) = &self.settings.batch {
            let may_start = |mate: &Parked<T>| {
                let debt = &mate.ticket.debt;
                !debt.is_expired(now) && debt.not_before(now).is_none()
            };
            let mut mates = Vec::new();
            while mates.len() + 1 < batch.max && lane.oldest_parked().is_some_and(may_start) {
                mates.extend(lane.take_parked());
            }
            if !mates.is_empty() {
                if !cfg!(keylane_mutant = "mates-uncounted") {
                    lane.extra_mut().mates = mates.len();
                }
                head.ticket.debt.terms_mut().mates = mates;
            }
        }
        Next::Start(head)
    }

    /// Until when a batch waits for more messages.
    fn lingers(&self, lane: &mut Lane<T>, now: Instant) -> Option<Instant> {
        let batch = self.settings.batch.as_ref()?;
        let is_open = self.shutdown.stage() == super::Stage::Open;
        if batch.linger.is_zero() || lane.parked_len() >= self.most(batch) || !is_open {
            return None;
        }
        let extra = lane.extra_mut();
        if std::mem::replace(&mut extra.lingered, true) {
            return None;
        }
        Some(later(now, batch.linger))
    }

    /// The messages of a lane that make a batch full: a lane may have room for fewer than are wanted.
    pub(super) fn most(&self, batch: &Batch) -> usize {
        batch.max.min(self.settings.lane_capacity)
    }

    /// A lane that was called has nothing that could start.
    fn nothing_parked(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        after: &mut After<T>,
    ) -> Next<Parked<T>> {
        if let Some(extra) = lane.extra_if_any() {
            extra.merged = 0;
            extra.lingered = false;
        }
        if let Some(resting) = self.misses(lane, now) {
            return self.rest(lane, key, hash, resting, now, after);
        }
        let tat = lane.extra().map_or(0, |extra| extra.tat);
        if let Some(limiter) = &self.settings.rate_per_key
            && limiter.forgets_at(tat) > self.stamp(now)
        {
            let until = self.moment(limiter.forgets_at(tat), now);
            return self.rest(lane, key, hash, (Rest::Idle, Some(until)), now, after);
        }
        if let Some(version) = self.unrecorded(lane) {
            after.records = Some(version);
            return self.rest(lane, key, hash, (Rest::Recording, None), now, after);
        }
        lane.leave();
        Next::Remove
    }

    /// The version that the store has to know before this lane goes: one that was given up.
    fn unrecorded(&self, lane: &Lane<T>) -> Option<u64> {
        self.loads.as_ref()?;
        lane.extra()?.sequencer.as_ref()?.unrecorded()
    }

    /// What a lane that sequences waits for while nothing in it is next.
    pub(super) fn misses(&self, lane: &Lane<T>, now: Instant) -> Option<(Rest, Option<Instant>)> {
        let sequencing = self.sequencing()?;
        let sequencer = lane.extra()?.sequencer.as_ref()?;
        if sequencer.is_unknown() {
            return Some((Rest::Loading, None));
        }
        let gap = sequencer.gap()?;
        let until = later(gap.since, sequencing.patience);
        // As early as its timer may be.
        if until <= now + TICK && sequencing.on_gap == OnGap::Halt {
            return Some((Rest::HaltedGap, None));
        }
        Some((Rest::Gap, Some(until)))
    }

    /// Nothing of this key starts for now.
    pub(super) fn rest(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        (why, until): (Rest, Option<Instant>),
        now: Instant,
        after: &mut After<T>,
    ) -> Next<Parked<T>> {
        self.halt_at_gap(why);
        lane.rest(why, until);
        after.rests = true;
        // A gap has a timer of its own, from when it was seen.
        if let Some(until) = until
            && why != Rest::Gap
        {
            let key = key.clone();
            self.rouse_at(Rouse::Rest { key, hash, until }, until, now);
        }
        if lane.is_stalled() && !cfg!(keylane_mutant = "resting-counts") {
            self.set_lane_apart(lane, &mut after.freed);
            let oldest = lane.oldest_parked().filter(|_| why != Rest::Rate);
            after.stalled = oldest.map(|parked| parked.ticket.parked_at);
        }
        Next::Stay
    }

    /// Whether versions may be missing in lanes that sequence.
    pub(super) fn has_gaps(&self) -> bool {
        self.sequencing()
            .is_some_and(|sequencing| sequencing.mode == Mode::Contiguous)
    }

    /// A moment in nanoseconds since the start, as a time.
    fn moment(&self, at: u64, now: Instant) -> Instant {
        let moment = self.epoch.checked_add(Duration::from_nanos(at));
        moment.unwrap_or(now + FAR)
    }
}

/// Beyond any wait that somebody sees the end of.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A time that is later, and exists.
pub(super) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or(from + FAR)
}
