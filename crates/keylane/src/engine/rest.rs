//! Lanes and messages that wait without having failed: put to rest, and roused.

use std::collections::BTreeMap;

use super::message::{Accepted, Held, Parked, Queued, Rouse, Turn, Work};
use super::settle::{Outcome, Tally};
use super::think::After;
use super::verdict::TICK;
use super::{Engine, Lane};
use crate::clock::{self, Instant};
use crate::discipline::Delayed;
use crate::lanes::{Next, Rest, State, Timer};
use crate::rt::{Mutex, lock};
use crate::types::{Spec, Types};
use crate::unwind::cloned;

/// Messages that come into their lanes when their time has come.
pub(super) struct Later<T: Types>(Mutex<Waiting<T>>);

struct Waiting<T: Types> {
    /// How many there were, which is the order of those with the same time.
    count: u64,
    accepted: BTreeMap<(Instant, u64), Accepted<T>>,
    /// When the one timer for all of them goes off.
    armed: Option<Instant>,
}

impl<T: Spec> Later<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Waiting {
            count: 0,
            accepted: BTreeMap::new(),
            armed: None,
        }))
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).accepted.is_empty()
    }

    /// Keeps a message. Returns the time for which a timer is to be armed, if for another one.
    fn insert(&self, accepted: Accepted<T>, until: Instant) -> Option<Instant> {
        let mut waiting = lock(&self.0);
        waiting.count += 1;
        let place = (until, waiting.count);
        waiting.accepted.insert(place, accepted);
        waiting.rearm()
    }

    /// The timer for `at` has gone off: takes what is due, in the order of the times, and of
    /// acceptance. And the time for which a timer is to be armed.
    #[allow(clippy::type_complexity, reason = "what is due, and when the next is")]
    fn take_due(&self, at: Instant, now: Instant) -> (Vec<Accepted<T>>, Option<Instant>) {
        let mut waiting = lock(&self.0);
        if waiting.armed == Some(at) {
            waiting.armed = None;
        }
        let mut due = Vec::new();
        while let Some(first) = waiting.accepted.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        let next = waiting.rearm();
        #[cfg(keylane_mutant = "delayed-reversed")]
        due.reverse();
        (due, next)
    }

    pub(super) fn take_all(&self) -> Vec<Accepted<T>> {
        let mut waiting = lock(&self.0);
        waiting.armed = None;
        std::mem::take(&mut waiting.accepted)
            .into_values()
            .collect()
    }
}

impl<T: Spec> Waiting<T> {
    fn rearm(&mut self) -> Option<Instant> {
        let first = self.accepted.first_key_value()?.0.0;
        if self.armed.is_some_and(|armed| armed <= first) {
            return None;
        }
        self.armed = Some(first);
        Some(first)
    }
}

impl<T: Spec> Engine<T> {
    /// Arms a timer, and makes sure that the router waits for it. May be called under a shard's lock.
    pub(super) fn rouse_at(&self, rouse: Rouse<T::Key>, at: Instant, now: Instant) {
        if self.rests.arm(rouse, at, now) {
            self.shutdown.nudge();
        }
    }

    /// Keeps a message until its time, if that is to come and others may pass it. It is no load
    /// meanwhile. A message without a key stands in nobody's way.
    #[inline(never)]
    pub(super) fn set_aside(&self, mut accepted: Accepted<T>, now: Instant) -> Option<Accepted<T>> {
        if self.settings.delayed == Delayed::Wait && accepted.key.is_some() {
            return Some(accepted);
        }
        let Some(until) = accepted.debt.waits_until(now) else {
            return Some(accepted);
        };
        self.keep_aside(&mut accepted.debt);
        if let Some(at) = self.later.insert(accepted, until) {
            self.rouse_at(Rouse::Delayed(at), at, now);
        }
        None
    }

    /// A turn that may not start as it is: its key is paused, or it has terms.
    ///
    /// Returns the turn that starts instead, if any.
    #[cold]
    pub(super) fn reconsider(&self, tally: &mut Tally, turn: Turn<T>) -> Option<Turn<T>> {
        let mut turn = turn;
        let now = clock::now();
        while turn.ticket.debt.is_expired(now) && matches!(turn.work, Work::Attempt(_)) {
            let Turn {
                key,
                hash,
                message,
                ticket,
                ..
            } = turn;
            self.settle(tally, ticket, Outcome::Expired(message));
            turn = match self.advance(key, hash)? {
                Queued::Turn(turn) => turn,
                Queued::Call { key, hash, .. } => return self.ask(key, hash),
            };
        }
        let Work::Attempt(attempt) = turn.work else {
            return Some(turn);
        };
        let until = turn.ticket.debt.not_before(now);
        let Some(key) = turn.key.as_ref().and_then(cloned) else {
            return Some(turn);
        };
        self.flush(tally);
        let hash = turn.hash;
        let mut after = After::new();
        let mut turn = Some(turn);
        self.lanes.with(hash, &key, |lane| {
            let why = if lane.is_paused() && !cfg!(keylane_mutant = "pause-unheard") {
                (Rest::Paused, None)
            } else if until.is_some() {
                (Rest::Delay, until)
            } else {
                return;
            };
            let Some(turn) = turn.take() else { return };
            let Turn {
                message,
                mut ticket,
                work,
                ..
            } = turn;
            if attempt > 1 {
                let why = "paused".into();
                let held = Held {
                    message,
                    ticket,
                    work,
                    why,
                };
                lane.back_off(Box::new(held), now);
                lane.extra_mut().timer = Timer::Used;
                self.set_lane_apart(lane, &mut after.freed);
                after.rests = true;
                return;
            }
            for mate in ticket.debt.take_mates().into_iter().rev() {
                lane.put_back(mate, self.lanes.spares());
            }
            lane.put_back(Parked { message, ticket }, self.lanes.spares());
            let _stays = self.rest(lane, &key, hash, why, now, &mut after);
        });
        self.carry_out(after, &key, hash);
        turn
    }

    /// The time of something that rests has come. Messages that were delayed come back to be routed.
    pub(super) fn rouse(
        &self,
        tally: &mut Tally,
        rouse: Rouse<T::Key>,
        now: Instant,
        turns: &mut Vec<Queued<T>>,
    ) -> Vec<Accepted<T>> {
        match rouse {
            Rouse::Delayed(at) => {
                let (due, next) = self.later.take_due(at, now);
                if let Some(next) = next {
                    self.rouse_at(Rouse::Delayed(next), next, now);
                }
                return due;
            }
            Rouse::Rest { key, hash, until } => {
                let called = self.lanes.with(hash, &key, |lane| match *lane.state() {
                    State::Resting { until: at, .. } if at == Some(until) => {
                        if until > now + TICK {
                            let key = key.clone();
                            self.rouse_at(Rouse::Rest { key, hash, until }, until, now);
                            return false;
                        }
                        lane.call();
                        true
                    }
                    _ => false,
                });
                if called == Some(true) {
                    turns.push(self.called(key, hash));
                }
            }
            Rouse::Expiry { key, hash, at } => self.expiry_due((key, hash, at), now, turns),
            Rouse::Gap { key, hash, since } => {
                self.gap_due(tally, (key, hash, since), now, turns);
            }
        }
        Vec::new()
    }

    /// Arms the timer of the first message of a lane that expires. Under the shard's lock.
    ///
    /// A timer outlives what it was armed for. With very many of them messages settle as expired when
    /// their turn comes, and not at their moment.
    pub(super) fn watch_expiry(&self, lane: &mut Lane<T>, key: &T::Key, hash: u64, now: Instant) {
        let newest = lane.parked_mut().next_back();
        let expires_at = newest.and_then(|newest| newest.ticket.debt.terms()?.expires_at);
        if let Some(at) = expires_at {
            self.watch_until(lane, key, hash, at, now);
        }
    }

    /// Arms a timer for something in a lane that expires then. Under the shard's lock.
    pub(super) fn watch_until(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        at: Instant,
        now: Instant,
    ) {
        let armed = lane.extra().and_then(|extra| extra.expiry);
        if armed.is_some_and(|armed| armed <= at)
            || self.rests.len() >= self.settings.capacity.saturating_mul(2)
        {
            return;
        }
        lane.extra_mut().expiry = Some(at);
        let key = key.clone();
        if cfg!(keylane_mutant = "expiry-unwatched") {
            return;
        }
        self.rouse_at(Rouse::Expiry { key, hash, at }, at, now);
    }

    /// Settles what has expired in a lane.
    fn expiry_due(
        &self,
        (key, hash, at): (T::Key, u64, Instant),
        now: Instant,
        turns: &mut Vec<Queued<T>>,
    ) {
        let mut after = After::new();
        let called = self.lanes.with(hash, &key, |lane| {
            if lane.extra().and_then(|extra| extra.expiry) != Some(at) {
                return false;
            }
            lane.extra_mut().expiry = None;
            if at > now + TICK {
                self.watch_expiry(lane, &key, hash, now);
                return false;
            }
            let moment = now.max(at);
            after.expired = lane.extract(|parked| parked.ticket.debt.is_expired(moment));
            if lane.parked_len() == 0 {
                lane.extra_mut().merged = 0;
            }
            after.opening = self.open_gate(lane, lane.depth());
            let expiries = lane
                .parked()
                .filter_map(|parked| parked.ticket.debt.terms());
            if let Some(at) = expiries.filter_map(|terms| terms.expires_at).min() {
                lane.extra_mut().expiry = Some(at);
                let key = key.clone();
                self.rouse_at(Rouse::Expiry { key, hash, at }, at, now);
            }
            // A resting lane may have waited for what is gone now: it is asked again.
            let is_empty = lane.parked_len() == 0;
            let asks = !after.expired.is_empty()
                && match lane.state() {
                    State::Resting {
                        why: Rest::Delay, ..
                    } => true,
                    State::Resting {
                        why: Rest::Rate | Rest::Linger,
                        ..
                    } => is_empty,
                    _ => false,
                };
            if asks {
                lane.call();
            } else if lane.is_paused() && !lane.is_out() {
                // Nobody asks a paused lane. The router is who runs this, and will see.
                let _drained = self.passes_bar(lane, &key, &Next::Stay);
            }
            asks
        });
        self.carry_out(after, &key, hash);
        if called == Some(true) {
            turns.push(self.called(key, hash));
        }
    }

    /// Hands back what is delayed, and forgets the timers of what rests.
    pub(super) fn clear_rests(&self, tally: &mut Tally, stamp: &mut u64) {
        self.rests.clear();
        for accepted in self.later.take_all() {
            *stamp += 1;
            self.hand_back_accepted(tally, accepted, *stamp);
        }
    }
}
