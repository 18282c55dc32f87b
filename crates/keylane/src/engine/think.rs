//! What a lane that thinks lets start: asked when a runner has time for it, and not before.
//!
//! Everything here runs under the lane's shard lock but [`Engine::ask`], which takes the lock, and
//! carries out afterwards what must not happen under it.

use std::fmt;
use std::time::Duration;

use super::apart::Freed;
use super::gate::Opening;
use super::message::{Parked, Queued, Rouse, Turn};
use super::settle::{Outcome, Tally};
use super::{Engine, Lane};
use crate::clock::{self, Instant};
use crate::discipline::{Discipline, Mode, OnGap, Sequencing};
use crate::lanes::{Next, Rest};

/// What is to be done once the shard's lock is gone.
#[must_use = "messages, room and senders wait for it"]
pub(super) struct After<M, O, E> {
    pub(super) expired: Vec<Parked<M, O, E>>,
    pub(super) freed: Freed,
    pub(super) opening: Opening,
    /// When the oldest message was parked that may wait for long now.
    pub(super) stalled: Option<u64>,
    /// The lane rests: if it is the end, somebody must hand back what is in it.
    pub(super) rests: bool,
}

impl<M, O, E> After<M, O, E> {
    pub(super) fn new() -> Self {
        Self {
            expired: Vec::new(),
            freed: Freed::default(),
            opening: Opening::Nothing,
            stalled: None,
            rests: false,
        }
    }
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// The settings of lanes that sequence.
    pub(super) fn sequencing(&self) -> Option<&Sequencing<K>> {
        match &self.settings.discipline {
            Discipline::Sequence(sequencing) => Some(sequencing),
            Discipline::Fifo | Discipline::Coalesce(_) => None,
        }
    }

    /// Asks a lane for its next turn; `before` brings it to the point of being asked.
    pub(super) fn ask(
        &self,
        key: K,
        hash: u64,
        before: impl FnOnce(&mut Lane<K, M, O, E>),
    ) -> Option<Turn<K, M, O, E>> {
        let now = clock::now();
        let mut after = After::new();
        let asked = self.lanes.advance(hash, &key, |lane| {
            before(lane);
            let next = self.pick(lane, &key, hash, now, &mut after);
            after.opening = self.open_gate(lane, lane.depth());
            Some((self.passes_bar(lane, &key, &next), next))
        });
        self.carry_out(after, &key, hash);
        let (drained, next) = asked?;
        if drained {
            self.tell_drained();
        }
        Some(Turn::first(Some(key), hash, next?))
    }

    /// The call of a lane, in the class of what it is about to start.
    pub(super) fn called(&self, key: K, hash: u64) -> Queued<K, M, O, E> {
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
    pub(super) fn carry_out(&self, after: After<M, O, E>, key: &K, hash: u64) {
        let After {
            expired,
            freed,
            opening,
            stalled,
            rests,
        } = after;
        opening.carry_out();
        self.free(&freed);
        if let Some(parked_at) = stalled {
            self.see_stalled(hash, parked_at);
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

    /// The head of a lane that thinks has settled.
    pub(super) fn advance_thinking(&self, key: K, hash: u64) -> Option<Turn<K, M, O, E>> {
        let mut forgotten = None;
        let owner = key.clone();
        let next = self.ask(key, hash, |lane| {
            let sequencer = lane.extra().and_then(|extra| extra.sequencer.as_ref());
            if let (Some(sequencing), Some(version)) = (
                self.sequencing(),
                sequencer.and_then(crate::lanes::Sequencer::started),
            ) {
                let now = clock::now();
                forgotten = Some(sequencing.versions.record(&owner, hash, version, now));
            }
            lane.finish_calling();
        });
        self.drop_quietly(forgotten);
        next
    }

    /// Decides what a lane that was called lets start.
    fn pick(
        &self,
        lane: &mut Lane<K, M, O, E>,
        key: &K,
        hash: u64,
        now: Instant,
        after: &mut After<M, O, E>,
    ) -> Next<Parked<M, O, E>> {
        if lane.is_paused() {
            return self.rest(lane, key, hash, (Rest::Paused, None), now, after);
        }
        while let Some(front) = lane.oldest_parked() {
            if front.ticket.debt.is_expired(now) {
                after.expired.extend(lane.take_parked());
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
    fn start_parked(&self, lane: &mut Lane<K, M, O, E>, now: Instant) -> Next<Parked<M, O, E>> {
        let Some(mut head) = lane.pick() else {
            return Next::Remove;
        };
        if let Some(extra) = lane.extra_if_any() {
            extra.merged = 0;
            extra.lingered = false;
            if let Some(sequencer) = &mut extra.sequencer {
                let version = head.ticket.debt.terms().map(|terms| terms.version);
                sequencer.start(version.unwrap_or_default());
            }
        }
        if let Some(batch) = &self.settings.batch {
            let may_start = |mate: &Parked<M, O, E>| {
                let debt = &mate.ticket.debt;
                !debt.is_expired(now) && debt.not_before(now).is_none()
            };
            let mut mates = Vec::new();
            while mates.len() + 1 < batch.max && lane.oldest_parked().is_some_and(may_start) {
                mates.extend(lane.take_parked());
            }
            if !mates.is_empty() {
                head.ticket.debt.terms_mut().mates = mates;
            }
        }
        Next::Start(head)
    }

    /// Until when a batch waits for more messages.
    fn lingers(&self, lane: &mut Lane<K, M, O, E>, now: Instant) -> Option<Instant> {
        let batch = self.settings.batch.as_ref()?;
        let is_open = self.shutdown.stage() == super::Stage::Open;
        if batch.linger.is_zero() || lane.parked_len() >= batch.max || !is_open {
            return None;
        }
        let extra = lane.extra_mut();
        if std::mem::replace(&mut extra.lingered, true) {
            return None;
        }
        now.checked_add(batch.linger)
    }

    /// A lane that was called has nothing that could start.
    fn nothing_parked(
        &self,
        lane: &mut Lane<K, M, O, E>,
        key: &K,
        hash: u64,
        now: Instant,
        after: &mut After<M, O, E>,
    ) -> Next<Parked<M, O, E>> {
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
        lane.leave();
        Next::Remove
    }

    /// What a lane that sequences waits for while nothing in it is next.
    pub(super) fn misses(
        &self,
        lane: &Lane<K, M, O, E>,
        now: Instant,
    ) -> Option<(Rest, Option<Instant>)> {
        let sequencing = self.sequencing()?;
        let sequencer = lane.extra()?.sequencer.as_ref()?;
        if sequencer.is_unknown() {
            return Some((Rest::Loading, None));
        }
        let gap = sequencer.gap()?;
        let until = later(gap.since, sequencing.patience);
        if until <= now && sequencing.on_gap == OnGap::Halt {
            return Some((Rest::HaltedGap, None));
        }
        Some((Rest::Gap, Some(until)))
    }

    /// Nothing of this key starts for now.
    pub(super) fn rest(
        &self,
        lane: &mut Lane<K, M, O, E>,
        key: &K,
        hash: u64,
        (why, until): (Rest, Option<Instant>),
        now: Instant,
        after: &mut After<M, O, E>,
    ) -> Next<Parked<M, O, E>> {
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
        if lane.is_stalled() {
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
