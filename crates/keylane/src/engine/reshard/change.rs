//! The number of lanes changes: keys that move drain from their old lane first.

use std::collections::{BTreeMap, VecDeque};

use keylane_rt::unwind::shielded;
use keylane_rt::{Arc, oneshot};

use super::super::message::{Accepted, Returning};
use super::super::{Engine, Overflow};
use super::layout::Places;
use crate::types::{Spec, Types};

/// Carries out changes, in the router.
pub(crate) struct Resharding<T: Spec> {
    places: Arc<Places<T::Key>>,
    from: usize,
    to: usize,
    /// Old lanes that have not drained, by their number.
    draining: BTreeMap<usize, Draining<T>>,
    done: Vec<oneshot::Sender<()>>,
}

/// An old lane, and the messages whose keys move from it.
struct Draining<T: Types> {
    lane: T::Key,
    hash: u64,
    /// Each with its `accepted_at`.
    held: VecDeque<(u64, Accepted<T>)>,
}

/// Where a message goes while the number of lanes changes.
pub(in super::super) enum Placed<T: Types> {
    /// Into the lane of its key.
    Lane(Accepted<T>),
    /// It is kept until its old lane has drained.
    Kept,
    /// It is kept, and so many are that the oldest had to go.
    Displaced((u64, Accepted<T>)),
    /// So many are kept that there is no room for it.
    Refused((u64, Accepted<T>)),
}

impl<T: Spec> Resharding<T> {
    pub(crate) fn new(places: Arc<Places<T::Key>>) -> Self {
        let lanes = places.layout().lanes();
        Self {
            places,
            from: lanes,
            to: lanes,
            draining: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// Whether a requested reshard has not begun.
    pub(in super::super) fn is_asked(&self) -> bool {
        self.draining.is_empty() && self.places.layout().is_asked()
    }

    /// Whether an old lane has gone without draining, which happens at the end alone.
    pub(in super::super) fn has_lost(&self, engine: &Engine<T>) -> bool {
        let mut draining = self.draining.values();
        draining.any(|old| !engine.table.is_marked(&old.lane, old.hash))
    }

    /// Places a message in the lane of its key, or keeps it until its old lane has drained.
    pub(in super::super) fn place(
        &mut self,
        engine: &Engine<T>,
        mut accepted: Accepted<T>,
        accepted_at: u64,
    ) -> Placed<T> {
        let Some(key) = accepted.key.take() else {
            return Placed::Lane(accepted);
        };
        let placing = &self.places.placing;
        let lane = (placing.among)(key.clone(), self.to);
        if !self.draining.is_empty() {
            let old = (placing.among)(key.clone(), self.from);
            let number = (placing.number)(&old);
            if old != lane
                && let Some(draining) = self.draining.get_mut(&number)
            {
                accepted.key = Some(key);
                return draining.keep(engine, accepted, accepted_at, number);
            }
        }
        accepted.hash = (self.places.hash)(&lane);
        accepted.key = Some(lane);
        Placed::Lane(accepted)
    }

    /// Continues the reshard. Messages kept for lanes that have drained go into `returning`. The
    /// last message so far was accepted at `accepted_at`.
    pub(in super::super) fn step(
        &mut self,
        engine: &Engine<T>,
        accepted_at: u64,
        returning: &mut Vec<Returning<T>>,
    ) {
        loop {
            for drained in engine.table.take_drained() {
                let number = (self.places.placing.number)(&drained);
                if let Some(old) = self.draining.remove(&number) {
                    let held = old.held.into_iter();
                    returning.extend(
                        held.map(|(accepted_at, kept)| Returning::accepted_at(kept, accepted_at)),
                    );
                    self.places.layout().disperse(number);
                }
            }
            if !self.draining.is_empty() {
                break;
            }
            for done in self.done.drain(..) {
                // The requester may have stopped waiting; otherwise this wakes its waker.
                shielded(|| done.send(()).unwrap_or_default());
            }
            let Some((lanes, done)) = self.places.layout().next() else {
                break;
            };
            self.begin(engine, accepted_at, lanes);
            self.done = done;
        }
    }

    fn begin(&mut self, engine: &Engine<T>, accepted_at: u64, lanes: usize) {
        self.from = self.to;
        self.to = lanes;
        self.places.layout().change(self.from, self.to);
        // With more lanes, keys may move from each old lane; with fewer, only from the removed
        // ones.
        let losing = if self.to > self.from {
            0..self.from
        } else {
            self.to..self.from
        };
        for number in losing {
            let lane = (self.places.placing.numbered)(number);
            let hash = (self.places.hash)(&lane);
            if engine.table.mark_end(&lane, hash, accepted_at) {
                let held = VecDeque::new();
                self.draining.insert(number, Draining { lane, hash, held });
            }
        }
    }

    /// Takes the kept messages at the end: all of them, or only those whose old lane was removed
    /// without draining.
    pub(in super::super) fn give_up(
        &mut self,
        engine: &Engine<T>,
        all: bool,
    ) -> Vec<(u64, Accepted<T>)> {
        let mut given_up = Vec::new();
        let before = self.draining.len();
        self.draining.retain(|_, old| {
            let stays = !all && engine.table.is_marked(&old.lane, old.hash);
            if !stays {
                given_up.extend(old.held.drain(..));
            }
            stays
        });
        if self.draining.len() < before {
            // The reshard has not finished.
            let done = std::mem::take(&mut self.done);
            shielded(|| drop(done));
        }
        given_up
    }
}

impl<T: Spec> Draining<T> {
    /// Keeps a message, with the limit of a lane and what happens there.
    fn keep(
        &mut self,
        engine: &Engine<T>,
        mut accepted: Accepted<T>,
        accepted_at: u64,
        number: usize,
    ) -> Placed<T> {
        let limit = engine.settings.lane_capacity;
        let is_full = self.held.len() >= limit;
        let overflow = engine.settings.overflow;
        if is_full && overflow == Overflow::DeadLetter {
            return Placed::Refused((accepted_at, accepted));
        }
        engine.room.stall_outside(&mut accepted.obligation);
        self.held.push_back((accepted_at, accepted));
        if is_full && overflow == Overflow::DropOldest {
            return self
                .held
                .pop_front()
                .map_or(Placed::Kept, Placed::Displaced);
        }
        let waits = matches!(overflow, Overflow::Wait | Overflow::Reject);
        if waits
            && (is_full || self.held.len() == limit)
            && let Some(places) = &engine.table.places
            && places.layout().crowd(number)
        {
            engine.probe.notify_overflowed(&self.lane);
        }
        Placed::Kept
    }
}

impl<T: Spec> Drop for Resharding<T> {
    fn drop(&mut self) {
        let done = std::mem::take(&mut self.done);
        shielded(|| drop(done));
        self.places.placing.layout.close();
    }
}
