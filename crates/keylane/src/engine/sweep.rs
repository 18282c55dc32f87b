//! Handing back what will not be handled.

use super::gate::Opening;
use super::message::{Held, Parked, Queued, Turn, Work};
use super::settle::Tally;
use super::shutdown::HandedBack;
use super::{Engine, Lane};
use crate::lanes::Next;
use crate::rt::atomic::Ordering;
use crate::types::Spec;
use crate::unwind::{caught, cloned};

impl<T: Spec> Engine<T> {
    /// Hands back a turn that will not start, and everything behind it.
    pub(super) fn hand_back_turn(&self, turn: Turn<T>) {
        let mut tally = Tally::default();
        let Turn {
            key,
            hash,
            message,
            ticket,
            work,
        } = turn;
        let attempts = work.attempts();
        let owner = key.as_ref().and_then(cloned).or_else(|| beside(&work));
        self.drop_quietly(work);
        let back = HandedBack::idle(owner, message, attempts);
        self.hand_back(&mut tally, back, ticket);
        self.release_handing_back(&mut tally, key, hash);
        self.flush(&mut tally);
    }

    /// The same for whatever stood in the ready queue.
    pub(super) fn hand_back_queued(&self, queued: Queued<T>) {
        match queued {
            Queued::Turn(turn) => self.hand_back_turn(turn),
            Queued::Call { key, hash, .. } => {
                let mut tally = Tally::default();
                self.release_handing_back(&mut tally, Some(key), hash);
                self.flush(&mut tally);
            }
        }
    }

    /// Hands back everything behind a head that is out and has just settled, and its lane.
    pub(super) fn release_handing_back(&self, tally: &mut Tally, key: Option<T::Key>, hash: u64) {
        let Some(key) = key else { return };
        // Also run while a panic of the key's own `Eq` unwinds, and must not be the second one. The
        // messages first: the removal drops a key, and that is the user's too.
        let released = caught(|| {
            let emptied = self.lanes.with(hash, &key, |lane| {
                let opening = self.remove_gate(lane);
                self.forget_pause(lane);
                (lane.hand_back().1, opening)
            });
            if let Some((parked, opening)) = emptied {
                opening.carry_out();
                self.hand_back_lane(tally, Some(&key), None, parked, false);
            }
            let removed = self.lanes.advance(hash, &key, |lane| {
                let opening = self.remove_gate(lane);
                // Somebody may have paused it since.
                self.forget_pause(lane);
                Some(((lane.hand_back().1, opening), Next::Remove))
            });
            if let Some(((parked, opening), _)) = removed {
                opening.carry_out();
                self.hand_back_lane(tally, Some(&key), None, parked, false);
            }
        });
        if released.is_err() {
            self.count_lost();
        }
        self.drop_quietly(key);
    }

    /// A lane that goes is not paused any more. Under the shard's lock.
    pub(super) fn forget_pause(&self, lane: &mut Lane<T>) {
        if lane.is_paused() {
            lane.extra_mut().paused = false;
            self.cautions.paused.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn hand_back_held(&self, tally: &mut Tally, key: Option<T::Key>, held: Held<T>) {
        let Held {
            message,
            ticket,
            work,
            ..
        } = held;
        let attempts = work.attempts();
        let owner = key.or_else(|| beside(&work));
        self.drop_quietly(work);
        self.hand_back(tally, HandedBack::idle(owner, message, attempts), ticket);
    }

    /// Hands back one lane whose head is in, if the end has come for it.
    pub(super) fn sweep_one(&self, tally: &mut Tally, key: &T::Key, hash: u64) {
        let all = self.shutdown.hands_back();
        let swept = self.lanes.advance(hash, key, |lane| {
            let is_over = lane.is_endless() || (all && !lane.is_out());
            is_over.then(|| {
                let opening = self.remove_gate(lane);
                self.forget_pause(lane);
                let halted = lane.is_stopped();
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

    /// Hands back what lanes hold: all of it, or only what cannot come to an end by itself.
    ///
    /// A lane whose head is out stays, empty, until the head comes back.
    pub(super) fn sweep(&self, only_endless: bool) {
        let mut swept = Vec::new();
        self.lanes.sweep(|key, _, lane| {
            if only_endless && !lane.is_endless() {
                return true;
            }
            let stays = lane.is_out();
            let opening = self.remove_gate(lane);
            self.forget_pause(lane);
            let halted = lane.is_stopped();
            let (head, parked) = lane.hand_back();
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
        key: Option<&T::Key>,
        head: Option<Box<Held<T>>>,
        parked: Vec<Parked<T>>,
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

    /// Lets every sender that waits at a gate see that the dispatcher is closed. Returns the calls of
    /// batches that wait for more messages: there will be none.
    pub(super) fn open_gates(&self) -> Vec<Queued<T>> {
        let (mut openings, mut called) = (Vec::new(), Vec::new());
        self.lanes.sweep(|key, hash, lane| {
            openings.push(self.remove_gate(lane));
            if lane.lingers()
                && let Some(key) = cloned(key)
            {
                lane.call();
                called.push((key, hash));
            }
            true
        });
        openings.into_iter().for_each(Opening::carry_out);
        if let Some(places) = &self.places {
            places.layout().open_gates();
        }
        let calls = called.into_iter();
        calls.map(|(key, hash)| self.called(key, hash)).collect()
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
}

/// The key of a letter that no lane waits for.
fn beside<T: Spec>(work: &Work<T>) -> Option<T::Key> {
    match work {
        Work::Attempt(_) => None,
        Work::Letter(given_up) => given_up.beside.as_ref().and_then(cloned),
    }
}
