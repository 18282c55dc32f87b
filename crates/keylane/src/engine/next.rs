//! What starts next in a lane.

use super::Engine;
use super::apply::Step;
use super::message::{Held, Parked, Queued, Turn, Work};
use super::outcome::{Outcome, Tally};
use crate::clock;
use crate::lanes::{Effects, Hold, Keep, Next};
use crate::types::Spec;
use crate::unwind::cloned;

impl<T: Spec> Engine<T> {
    /// The head of a lane has settled: returns the next message of the key, or the lane itself if it is to
    /// be asked for it later.
    #[inline]
    pub(super) fn advance(&self, key: Option<T::Key>, hash: u64) -> Option<Queued<T>> {
        let key = key?;
        if self.has_discipline {
            return self.advance_by_plan(key, hash);
        }
        let (mut turn, mut slow) = (None, None);
        self.lanes.advance(hash, &key, |lane| {
            // Hardly any lane is full, paused or marked, and what is not is not asked further.
            if !lane.is_plain() {
                let now = clock::now();
                let (step, keep) = self.carry_out_locked(lane, &key, hash, now, |lane| {
                    let mut effects = Effects::new();
                    lane.advance(now, &self.rules, false, &mut effects);
                    effects
                });
                slow = Some(step);
                return match keep {
                    Keep::Stay => Some(((), Next::Stay)),
                    Keep::Remove => Some(((), Next::Remove)),
                };
            }
            let next = match lane.finish() {
                // Made here and handed past the map, so that the message is moved once.
                Next::Start(parked) => {
                    turn = Some(Turn::first(None, hash, parked));
                    Next::Stay
                }
                next => next,
            };
            Some(((), next))
        })?;
        if let Some(step) = slow {
            return self.follow(key, hash, step);
        }
        let mut turn = turn?;
        turn.key = Some(key);
        Some(turn.into())
    }

    /// The same in a lane with a discipline.
    // Not into the way of plain lanes.
    #[inline(never)]
    fn advance_by_plan(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let now = clock::now();
        let step = self.step(&key, hash, now, |lane| {
            let mut effects = Effects::new();
            lane.advance(now, &self.rules, false, &mut effects);
            effects
        })?;
        self.follow(key, hash, step)
    }

    /// A runner took a lane out of the ready queue: returns what starts at once, if anything does.
    pub(super) fn ask(&self, key: T::Key, hash: u64) -> Option<Turn<T>> {
        let mut asked = Queued::Call {
            key,
            hash,
            class: 0,
        };
        loop {
            match asked {
                Queued::Turn(turn) => return Some(turn),
                Queued::Call { key, hash, .. } => {
                    let now = clock::now();
                    let step = self.step(&key, hash, now, |lane| lane.next(now, &self.rules))?;
                    asked = self.follow(key, hash, step)?;
                }
            }
        }
    }

    /// Carries out what followed from a head that settled, or from a lane that was asked.
    fn follow(&self, key: T::Key, hash: u64, step: Step<T>) -> Option<Queued<T>> {
        let mut tally = Tally::default();
        let mut letters = Vec::new();
        let queued = self.apply(&mut tally, key, hash, step, &mut letters);
        assert!(letters.is_empty(), "only what comes in can be turned away");
        if !tally.is_empty() {
            self.flush(&mut tally);
        }
        queued
    }

    /// A head that may not start as it is: its key is paused, or it has terms. Returns the one that starts
    /// instead, if any.
    #[cold]
    pub(super) fn reconsider(&self, tally: &mut Tally, mut turn: Turn<T>) -> Option<Turn<T>> {
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
        let mut turn = Some(turn);
        let step = self.step(&key, hash, now, |lane| {
            let is_paused = lane.is_paused() && !cfg!(keylane_mutant = "pause-unheard");
            let Some(turn) = turn.take_if(|_| is_paused || until.is_some()) else {
                return Effects::new();
            };
            let Turn {
                message,
                mut ticket,
                work,
                ..
            } = turn;
            if attempt > 1 {
                let head = Held {
                    message,
                    ticket,
                    work,
                    why: "paused".into(),
                };
                return lane.hold(Box::new(head), Hold::Paused(now));
            }
            let mut items = ticket.debt.take_mates();
            items.insert(0, Parked { message, ticket });
            lane.take_back(items, until, self.lanes.spares())
        });
        if turn.is_some() {
            return turn;
        }
        let queued = self.follow(key, hash, step?)?;
        match queued {
            Queued::Turn(turn) => Some(turn),
            Queued::Call { key, hash, .. } => self.ask(key, hash),
        }
    }
}
