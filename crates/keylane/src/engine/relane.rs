//! The number of lanes changes: keys that move drain from their old lane first.

use std::collections::VecDeque;
use std::fmt;

use super::message::{Accepted, Parked};
use super::{Engine, Lane};
use crate::lanes::Next;
use crate::rt::atomic::{AtomicUsize, Ordering};
use crate::rt::{Arc, Mutex, lock, oneshot};

/// How many lanes there are, and who wants another number.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Senders read it to find the gate of their lane; the router decides for itself.
    lanes: AtomicUsize,
    /// `None`: nobody carries them out any more.
    requests: Mutex<Option<VecDeque<Request>>>,
}

#[derive(Debug)]
struct Request {
    lanes: usize,
    done: oneshot::Sender<()>,
}

impl Layout {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lanes: AtomicUsize::new(lanes),
            requests: Mutex::new(Some(VecDeque::new())),
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    pub(crate) fn ask(&self, lanes: usize, done: oneshot::Sender<()>) {
        if let Some(requests) = &mut *lock(&self.requests) {
            requests.push_back(Request { lanes, done });
        }
    }

    fn next(&self) -> Option<Request> {
        lock(&self.requests).as_mut()?.pop_front()
    }

    fn is_asked(&self) -> bool {
        let requests = lock(&self.requests);
        requests
            .as_ref()
            .is_some_and(|requests| !requests.is_empty())
    }

    /// Nobody carries out what was asked for any more, nor what will be.
    fn close(&self) {
        let requests = lock(&self.requests).take();
        drop(requests);
    }
}

/// How the lane of a key is found, whatever a key is.
#[derive(Clone)]
pub(crate) struct Placing<K> {
    pub(crate) layout: Arc<Layout>,
    /// The lane of the same key among so many.
    pub(crate) among: fn(K, usize) -> K,
    /// The lane of a number.
    pub(crate) numbered: fn(usize) -> K,
}

/// Carries out changes, in the router.
pub(crate) struct Relaning<K, M, O, E> {
    placing: Placing<K>,
    hash: Box<dyn Fn(&K) -> u64 + Send + Sync>,
    from: usize,
    to: usize,
    /// Old lanes that have not drained, with the messages whose keys move from them.
    draining: Vec<Draining<K, M, O, E>>,
    done: Option<oneshot::Sender<()>>,
}

struct Draining<K, M, O, E> {
    lane: K,
    hash: u64,
    held: VecDeque<Accepted<K, M, O, E>>,
}

impl<K, M, O, E> Relaning<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    pub(crate) fn new(placing: Placing<K>, hash: Box<dyn Fn(&K) -> u64 + Send + Sync>) -> Self {
        let lanes = placing.layout.lanes();
        Self {
            placing,
            hash,
            from: lanes,
            to: lanes,
            draining: Vec::new(),
            done: None,
        }
    }

    /// Whether somebody waits for a change that has not begun.
    pub(super) fn is_asked(&self) -> bool {
        self.draining.is_empty() && self.placing.layout.is_asked()
    }

    /// Brings a message to the lane of its key, or keeps it until its old lane has drained.
    pub(super) fn place(
        &mut self,
        engine: &Engine<K, M, O, E>,
        mut accepted: Accepted<K, M, O, E>,
    ) -> Option<Accepted<K, M, O, E>> {
        let key = accepted.key.take()?;
        if !self.draining.is_empty() {
            let old = (self.placing.among)(key.clone(), self.from);
            let new = (self.placing.among)(key.clone(), self.to);
            let draining = self
                .draining
                .iter_mut()
                .find(|draining| draining.lane == old);
            if old != new
                && let Some(draining) = draining
                && !cfg!(keylane_mutant = "move-at-once")
            {
                engine.keep_aside(&mut accepted.debt);
                accepted.key = Some(key);
                draining.held.push_back(accepted);
                return None;
            }
        }
        let lane = (self.placing.among)(key, self.to);
        accepted.hash = (self.hash)(&lane);
        accepted.key = Some(lane);
        Some(accepted)
    }

    /// Goes on with the change. What was kept for lanes that have drained goes before `batch`; returns
    /// how many messages that is.
    pub(super) fn step(
        &mut self,
        engine: &Engine<K, M, O, E>,
        stamp: u64,
        batch: &mut Vec<Accepted<K, M, O, E>>,
    ) -> usize {
        let mut released = Vec::new();
        loop {
            for drained in engine.take_drained() {
                let at = self.draining.iter().position(|old| old.lane == drained);
                released.extend(at.into_iter().flat_map(|at| self.draining.remove(at).held));
            }
            if !self.draining.is_empty() {
                break;
            }
            if let Some(done) = self.done.take() {
                // Nobody may wait for it any more.
                let _ = done.send(());
            }
            let Some(Request { lanes, done }) = self.placing.layout.next() else {
                break;
            };
            self.begin(engine, stamp, lanes);
            self.done = Some(done);
        }
        let count = released.len();
        batch.splice(0..0, released);
        count
    }

    fn begin(&mut self, engine: &Engine<K, M, O, E>, stamp: u64, lanes: usize) {
        self.from = self.to;
        self.to = lanes;
        self.placing.layout.lanes.store(lanes, Ordering::Relaxed);
        if self.from == self.to {
            return;
        }
        for number in 0..self.from {
            let lane = (self.placing.numbered)(number);
            let hash = (self.hash)(&lane);
            if engine.bar(&lane, hash, stamp) {
                let held = VecDeque::new();
                self.draining.push(Draining { lane, hash, held });
            }
        }
    }

    /// Everything that was kept, for the end. Only what is behind lanes that are gone: of these nobody
    /// will say that they have drained.
    pub(super) fn give_up(
        &mut self,
        engine: &Engine<K, M, O, E>,
        all: bool,
    ) -> Vec<Accepted<K, M, O, E>> {
        let mut given_up = Vec::new();
        let before = self.draining.len();
        self.draining.retain_mut(|old| {
            let stays = !all && engine.is_barred(&old.lane, old.hash);
            if !stays {
                given_up.extend(old.held.drain(..));
            }
            stays
        });
        if self.draining.len() < before {
            // The change has not come to its end.
            self.done = None;
        }
        given_up
    }
}

impl<K, M, O, E> Drop for Relaning<K, M, O, E> {
    fn drop(&mut self) {
        self.placing.layout.close();
    }
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Marks the end of what is in a lane now. False: there is nothing in it.
    fn bar(&self, lane: &K, hash: u64, stamp: u64) -> bool {
        let barred = self.lanes.with(hash, lane, |lane| {
            let holds = !lane.is_bare() && (lane.depth() > 0 || lane.is_out());
            if holds {
                lane.extra_mut().bar = Some(stamp);
            }
            holds
        });
        barred == Some(true)
    }

    fn is_barred(&self, lane: &K, hash: u64) -> bool {
        let barred = self.lanes.peek(hash, lane, |lane| {
            lane.extra().is_some_and(|extra| extra.bar.is_some())
        });
        // One that has drained a moment ago is still to be told of.
        barred == Some(true) || lock(&self.drained).contains(lane)
    }

    /// Whether a lane has drained that the router does not know of.
    pub(super) fn has_drained(&self) -> bool {
        self.layout.is_some() && !lock(&self.drained).is_empty()
    }

    fn take_drained(&self) -> Vec<K> {
        std::mem::take(&mut *lock(&self.drained))
    }

    /// Whether a lane has drained up to its mark, with what is to come next. Under the shard's lock.
    #[inline]
    pub(super) fn passes_bar(lane: &mut Lane<K, M, O, E>, next: &Next<Parked<M, O, E>>) -> bool {
        let Some(extra) = lane.extra() else {
            return false;
        };
        let Some(stamp) = extra.bar else { return false };
        let is_behind = |parked: &Parked<M, O, E>| parked.ticket.parked_at > stamp;
        let has_early = extra.sequencer.as_ref().is_some_and(|s| s.early_len() > 0);
        let passed = match next {
            Next::Start(parked) => is_behind(parked),
            Next::Stay => !has_early && lane.oldest_parked().is_none_or(is_behind),
            Next::Remove => true,
        };
        if passed {
            lane.extra_mut().bar = None;
        }
        passed
    }

    /// Tells the router that a lane has drained. Not under the shard's lock.
    #[cold]
    pub(super) fn drained(&self, lane: &K) {
        lock(&self.drained).push(lane.clone());
        self.shutdown.nudge();
    }
}
