//! Lanes and messages that wait without having failed: put to rest, and roused.

use std::fmt;

use super::caught::cloned;
use super::message::{Accepted, Due, Held, Parked, Queued, Rouse, Turn, Work};
use super::settle::{Outcome, Tally};
use super::think::After;
use super::verdict::TICK;
use super::{Engine, Lane};
use crate::clock::{self, Instant};
use crate::discipline::Delayed;
use crate::lanes::{Next, Rest, State};
use crate::rt::{Mutex, NumberMap, lock};

/// Messages that come into their lanes when their time has come.
#[derive(Debug)]
pub(super) struct Later<K, M, O, E>(Mutex<Waiting<K, M, O, E>>);

#[derive(Debug)]
struct Waiting<K, M, O, E> {
    next: u64,
    accepted: NumberMap<u64, Accepted<K, M, O, E>>,
}

impl<K, M, O, E> Later<K, M, O, E> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Waiting {
            next: 0,
            accepted: NumberMap::new(),
        }))
    }

    fn insert(&self, accepted: Accepted<K, M, O, E>) -> u64 {
        let mut waiting = lock(&self.0);
        waiting.next += 1;
        let number = waiting.next;
        waiting.accepted.insert(number, accepted);
        number
    }

    pub(super) fn take(&self, number: u64) -> Option<Accepted<K, M, O, E>> {
        lock(&self.0).accepted.remove(&number)
    }

    pub(super) fn take_all(&self) -> Vec<Accepted<K, M, O, E>> {
        let accepted = std::mem::take(&mut lock(&self.0).accepted);
        accepted.into_values().collect()
    }
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Arms a timer, and makes sure that the router waits for it. May be called under a shard's lock.
    pub(super) fn rouse_at(&self, rouse: Rouse<K>, at: Instant, now: Instant) {
        if self.rests.arm(rouse, at, now) {
            self.shutdown.nudge();
        }
    }

    /// Keeps a message until its time, if that is to come and others may pass it.
    pub(super) fn set_aside(
        &self,
        accepted: Accepted<K, M, O, E>,
        now: Instant,
    ) -> Option<Accepted<K, M, O, E>> {
        if self.settings.delayed == Delayed::Wait {
            return Some(accepted);
        }
        let Some(until) = accepted.debt.not_before(now) else {
            return Some(accepted);
        };
        let number = self.later.insert(accepted);
        self.rouse_at(Rouse::Delayed(number), until, now);
        None
    }

    /// A turn that may not start as it is: its key is paused, or it has terms.
    ///
    /// Returns the turn that starts instead, if any.
    #[cold]
    pub(super) fn reconsider(
        &self,
        tally: &mut Tally,
        turn: Turn<K, M, O, E>,
    ) -> Option<Turn<K, M, O, E>> {
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
            turn = self.advance(key, hash)?;
        }
        let Work::Attempt(attempt) = turn.work else {
            return Some(turn);
        };
        let until = turn.ticket.debt.not_before(now);
        let Some(key) = turn.key.as_ref().and_then(cloned) else {
            return match until {
                None => Some(turn),
                Some(until) => {
                    self.hold_keyless(turn, until, now);
                    None
                }
            };
        };
        self.flush(tally);
        let hash = turn.hash;
        let mut after = After::new();
        let mut turn = Some(turn);
        self.lanes.with(hash, &key, |lane| {
            let why = if lane.is_paused() {
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
                self.set_lane_apart(lane, &mut after.freed);
                after.rests = true;
                return;
            }
            let mates = match ticket.debt.is_termed() {
                true => std::mem::take(&mut ticket.debt.terms_mut().mates),
                false => Vec::new(),
            };
            for mate in mates.into_iter().rev() {
                lane.put_back(mate, self.lanes.spares());
            }
            lane.put_back(Parked { message, ticket }, self.lanes.spares());
            let _stays = self.rest(lane, &key, hash, why, now, &mut after);
        });
        self.carry_out(after, &key, hash);
        turn
    }

    /// A message without a lane is not to start yet.
    fn hold_keyless(&self, turn: Turn<K, M, O, E>, until: Instant, now: Instant) {
        let Turn {
            message,
            ticket,
            work,
            ..
        } = turn;
        let number = self.keyless.insert(Held {
            message,
            ticket,
            work,
            why: "delayed".into(),
        });
        self.arm(Due::Keyless(number), until, now);
        if self.shutdown.hands_back()
            && let Some(held) = self.keyless.take(number)
        {
            let mut tally = Tally::default();
            self.hand_back_held(&mut tally, None, held);
            self.flush(&mut tally);
        }
    }

    /// The time of something that rests has come. A message that was delayed comes back to be routed.
    pub(super) fn rouse(
        &self,
        tally: &mut Tally,
        rouse: Rouse<K>,
        now: Instant,
        turns: &mut Vec<Queued<K, M, O, E>>,
    ) -> Option<Accepted<K, M, O, E>> {
        match rouse {
            Rouse::Delayed(number) => {
                let delayed = self.later.take(number)?;
                match delayed.debt.not_before(now + TICK) {
                    None => return Some(delayed),
                    Some(until) => {
                        // The wheel has a longest wait; this one waits longer.
                        let number = self.later.insert(delayed);
                        self.rouse_at(Rouse::Delayed(number), until, now);
                    }
                }
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
        None
    }

    /// Arms the timer of the first message of a lane that expires. Under the shard's lock.
    ///
    /// A timer outlives what it was armed for. With very many of them messages settle as expired when
    /// their turn comes, and not at their moment.
    pub(super) fn watch_expiry(
        &self,
        lane: &mut Lane<K, M, O, E>,
        key: &K,
        hash: u64,
        now: Instant,
    ) {
        let newest = lane.parked_mut().next_back();
        let expires_at = newest.and_then(|newest| newest.ticket.debt.terms()?.expires_at);
        let Some(at) = expires_at else { return };
        let armed = lane.extra().and_then(|extra| extra.expiry);
        if armed.is_some_and(|armed| armed <= at)
            || self.rests.len() >= self.settings.capacity.saturating_mul(2)
        {
            return;
        }
        lane.extra_mut().expiry = Some(at);
        let key = key.clone();
        self.rouse_at(Rouse::Expiry { key, hash, at }, at, now);
    }

    /// Settles what has expired in a lane.
    fn expiry_due(
        &self,
        (key, hash, at): (K, u64, Instant),
        now: Instant,
        turns: &mut Vec<Queued<K, M, O, E>>,
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
            let asks = matches!(
                lane.state(),
                State::Resting {
                    why: Rest::Delay | Rest::Rate | Rest::Linger,
                    ..
                }
            ) && !after.expired.is_empty();
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
