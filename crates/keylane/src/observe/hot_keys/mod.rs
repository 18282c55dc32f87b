//! Which keys are hot: bounded tables of candidates, known by their hashes alone.
//!
//! Nothing here walks the lanes, clones a key or runs the user's code. A query looks each candidate
//! up in its lane, so what it returns is exact; only the choice of candidates can be wrong.
//!
//! | table | what comes in | what goes when it is full |
//! | --- | --- | --- |
//! | [`Deepest`] | a lane that grew to 2, 4, 8, .. messages, or by 64 | the least deep |
//! | [`Stalled`] | a head that waits for a retry, a sink or a decision | the youngest head |
//! | [`Waits`] | each handler that waits, until it is ready | nothing: there is room for all |
//! | [`Stopped`] | a lane that an operator pauses, or that halts | the one that was first |
//! | [`Busy`] | the time that handlers of a key have waited | the least: Space-Saving |
//!
//! The tables of a dispatcher that never needs them hold no memory.

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::{Mutex, lock};

mod ranking;
use ranking::Ranking;

mod deepest;
use deepest::Deepest;
pub(crate) use deepest::DepthFilter;

mod stalled;
use stalled::{Recheck, Stalled};

mod waits;
pub(crate) use waits::Wait;
use waits::Waits;

mod stopped;
use stopped::Stopped;

mod space_saving;
use space_saving::SpaceSaving;

mod busy;
use busy::Busy;

/// Slots of [`Waits`] read for one sample.
const SAMPLED_SLOTS: usize = 8_192;

/// The tables of one dispatcher.
///
/// Their locks are innermost and never held together. `depth_of` and `is_stalled` look at a lane by
/// its hash, `None` if it is gone, and take the lock of a shard; no table is locked meanwhile.
#[derive(Debug)]
pub(crate) struct HotKeys {
    deepest: Mutex<Deepest>,
    /// How often a query has changed `deepest`. Relaxed: a hint for `DepthFilter::begin`, which at
    /// worst keeps a lane away from the table for one more batch.
    queries: AtomicUsize,
    stalled: Mutex<Stalled>,
    waits: Waits,
    busy: Mutex<Busy>,
    paused: Mutex<Stopped>,
    halted: Mutex<Stopped>,
}

/// Why only an operator lets a lane go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Paused,
    Halted,
}

/// All candidates at one moment.
#[derive(Debug)]
pub(crate) struct Candidates {
    deepest: Vec<(u64, u64)>,
    stalled: Vec<(u64, u64)>,
    busy: Vec<u64>,
}

impl Candidates {
    /// Their hashes. One may come several times.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        let ranked = self.deepest.iter().chain(&self.stalled);
        ranked
            .map(|(hash, _)| *hash)
            .chain(self.busy.iter().copied())
    }
}

impl HotKeys {
    pub(crate) fn new(concurrency: usize) -> Self {
        Self {
            deepest: Mutex::default(),
            queries: AtomicUsize::new(0),
            stalled: Mutex::default(),
            waits: Waits::new(concurrency),
            busy: Mutex::default(),
            paused: Mutex::default(),
            halted: Mutex::default(),
        }
    }

    /// The router is about to route so many messages.
    #[inline]
    pub(crate) fn begin(&self, filter: &mut DepthFilter, messages: usize) {
        // Partner: `update`.
        filter.begin(messages, self.queries.load(Ordering::Relaxed));
    }

    /// The router has parked a message, and now the lane is this deep.
    #[inline]
    pub(crate) fn deepened(
        &self,
        filter: &mut DepthFilter,
        hash: u64,
        depth: usize,
        depth_of: impl Fn(u64) -> Option<u64>,
    ) {
        if filter.is_news(hash, depth) {
            self.record_depth(filter, hash, depth as u64, depth_of);
        }
    }

    #[cold]
    fn record_depth(
        &self,
        filter: &mut DepthFilter,
        hash: u64,
        depth: u64,
        depth_of: impl Fn(u64) -> Option<u64>,
    ) {
        let deepest = &self.deepest;
        let (mut admitted, mut gone) = lock(deepest).admit(hash, depth);
        if !admitted {
            for _ in 0..filter.refused() {
                let Some((other, was)) = lock(deepest).next() else {
                    break;
                };
                let depth = depth_of(other);
                lock(deepest).update(other, was, depth);
                filter.forget(other);
            }
            (admitted, gone) = lock(deepest).admit(hash, depth);
        }
        if let Some(gone) = gone {
            filter.forget(gone);
        }
        if admitted {
            filter.record(hash, depth);
        }
        let floor = lock(deepest).floor();
        filter.raise(floor);
    }

    /// A head, accepted at this moment, comes to wait for time or for a decision.
    pub(crate) fn stalled(
        &self,
        hash: u64,
        accepted: u64,
        is_stalled: impl Fn(u64) -> Option<bool>,
    ) {
        let stalled = &self.stalled;
        if lock(stalled).admit(hash, accepted) {
            return;
        }
        // All others seem to be older. One of them may have recovered.
        let next = lock(stalled).next();
        if let Some((other, was)) = next {
            let seen = Recheck::of(is_stalled(other));
            lock(stalled).update(other, was, seen);
            lock(stalled).admit(hash, accepted);
        }
    }

    /// Lanes whose head may wait for time or for a decision, the oldest head first.
    pub(crate) fn maybe_stalled(&self) -> Vec<u64> {
        let mut stalled: Vec<_> = lock(&self.stalled).entries().collect();
        stalled.sort_unstable_by_key(|(hash, age)| (std::cmp::Reverse(*age), *hash));
        stalled.into_iter().map(|(hash, _)| hash).collect()
    }

    /// A lane has been stopped.
    pub(crate) fn stopped(&self, stop: Stop, hash: u64) {
        lock(self.of(stop)).admit(hash);
    }

    /// Lanes that may be stopped, the one that was stopped last first.
    pub(crate) fn maybe_stopped(&self, stop: Stop) -> Vec<u64> {
        lock(self.of(stop)).all()
    }

    /// A lane is not stopped any more.
    pub(crate) fn not_stopped(&self, stop: Stop, hash: u64) {
        lock(self.of(stop)).remove(hash);
    }

    fn of(&self, stop: Stop) -> &Mutex<Stopped> {
        match stop {
            Stop::Paused => &self.paused,
            Stop::Halted => &self.halted,
        }
    }

    /// The handler of this runner begins to wait.
    #[inline]
    pub(crate) fn waiting(&self, runner: u32, hash: u64, since: u64) {
        self.waits.enter(runner, hash, since);
    }

    /// The handler is ready, or was dropped.
    #[inline]
    pub(crate) fn ready(&self, runner: u32) {
        self.waits.leave(runner);
    }

    /// Samples begin again after an idle time. The last tick before now was at this moment.
    pub(crate) fn resume_sampling(&self, last: u64) {
        lock(&self.busy).resume(last);
    }

    /// Counts the handlers that wait at this moment. The watchdog does it, so that handlers do not
    /// pay for it.
    pub(crate) fn sample(&self, now: u64) {
        let mut busy = lock(&self.busy);
        let (weight, samples) = busy.sample(now);
        // Of very many places a part each time.
        let parts = self.waits.len().div_ceil(SAMPLED_SLOTS).max(1);
        let from = samples % parts * SAMPLED_SLOTS;
        let waiting = self.waits.part(from, SAMPLED_SLOTS).unwrap_or_default();
        for Wait { hash, .. } in waiting {
            busy.add(hash, weight.saturating_mul(parts as u64), now);
        }
    }

    /// The handlers that wait, of a part of the places; `None` behind the last place.
    pub(crate) fn waits(&self, from: usize, len: usize) -> Option<Vec<Wait>> {
        self.waits.part(from, len)
    }

    /// The candidates of all tables but the handlers that wait.
    pub(crate) fn candidates(&self) -> Candidates {
        Candidates {
            deepest: lock(&self.deepest).entries().collect(),
            stalled: lock(&self.stalled).entries().collect(),
            busy: lock(&self.busy).hashes().collect(),
        }
    }

    /// A query has looked at all of these candidates.
    pub(crate) fn update(
        &self,
        candidates: &Candidates,
        depth_of: impl Fn(u64) -> Option<u64>,
        is_stalled: impl Fn(u64) -> Option<bool>,
    ) {
        for &(hash, was) in &candidates.deepest {
            lock(&self.deepest).update(hash, was, depth_of(hash));
        }
        // Partner: `begin`.
        self.queries.fetch_add(1, Ordering::Relaxed);
        for &(hash, was) in &candidates.stalled {
            lock(&self.stalled).update(hash, was, Recheck::of(is_stalled(hash)));
        }
    }

    /// How long the handlers of this key have waited, in nanoseconds: at most, and at least.
    pub(crate) fn busy_time(&self, hash: u64, now: u64) -> (u64, u64) {
        lock(&self.busy).bounds(hash, now)
    }
}
