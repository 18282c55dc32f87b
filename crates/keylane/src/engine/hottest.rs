//! Feeding the tables of hot keys, and asking them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use crate::clock::{self, Instant};
use crate::lanes::State;
use crate::observe::heat::{Grown, Still, Wait};
use crate::observe::{By, Hot};
use crate::rt::atomic::Ordering;
use crate::rt::{self, lock};
use crate::types::Spec;
use crate::unwind::caught;

/// Candidates looked at, or places of handlers read, before others may run.
const BATCH: usize = 64;
const PLACES: usize = 1_024;

/// Places read for one sample.
const SAMPLED_PLACES: usize = 8_192;

/// Most handlers in flight that are candidates; the ones that have waited longest.
const OLDEST_WAITS: usize = 1_024;

/// What one look at a lane shows.
#[derive(Clone, Copy, Debug)]
struct Figures {
    depth: usize,
    age: Duration,
    /// How long its handler has been waiting.
    waits: Duration,
    stalled: bool,
}

impl<T: Spec> Engine<T> {
    /// The router has parked a message, and now the lane is this deep.
    #[inline]
    pub(super) fn see_depth(&self, grown: &mut Grown, hash: u64, depth: usize) {
        if grown.is_news(hash, depth) {
            self.see_growth(grown, hash, depth as u64);
        }
    }

    #[cold]
    fn see_growth(&self, grown: &mut Grown, hash: u64, depth: u64) {
        let deep = &self.heat.deep;
        let (mut admitted, mut gone) = lock(deep).admit(hash, depth);
        if !admitted {
            for _ in 0..grown.refused() {
                let Some((other, was)) = lock(deep).next() else {
                    break;
                };
                let seen = self
                    .lanes
                    .peek_hash(other, |lane| lane.depth(&self.rules) as u64);
                lock(deep).seen(other, was, seen);
                grown.forget(other);
            }
            (admitted, gone) = lock(deep).admit(hash, depth);
        }
        if let Some(gone) = gone {
            grown.forget(gone);
        }
        if admitted {
            grown.record(hash, depth);
        }
        let floor = lock(deep).floor();
        grown.raise(floor);
    }

    /// A head comes to wait for time or for a decision.
    pub(super) fn see_stalled(&self, hash: u64, accepted: u64) {
        let stalled = &self.heat.stalled;
        if lock(stalled).admit(hash, accepted) {
            return;
        }
        // All others seem to be older. One of them may have recovered.
        let next = lock(stalled).next();
        if let Some((other, was)) = next {
            let still = self.still(self.lanes.peek_hash(other, |lane| lane.is_stalled()));
            lock(stalled).seen(other, was, still);
            lock(stalled).admit(hash, accepted);
        }
    }

    fn still(&self, stalled: Option<bool>) -> Still {
        match stalled {
            Some(true) => Still::Stalled,
            Some(false) => Still::Recovered,
            None => Still::Gone,
        }
    }

    /// The handler of a runner begins to wait.
    #[inline]
    pub(super) fn begin_wait(&self, runner: u32, hash: u64, now: Instant) {
        self.heat.waits.enter(runner, hash, self.stamp(now));
    }

    /// It is ready, or was dropped in the middle.
    #[inline]
    pub(super) fn end_wait(&self, runner: u32) {
        self.heat.waits.leave(runner);
    }

    /// Counts the handlers that wait at this moment. The watch does it, so that handlers pay nothing.
    pub(super) fn sample_waits(&self) {
        let now = self.stamp(clock::now());
        let mut busy = lock(&self.heat.busy);
        let (weight, samples) = busy.sample(now);
        // Of very many places a part each time.
        let parts = self.heat.waits.size().div_ceil(SAMPLED_PLACES);
        let from = samples % parts * SAMPLED_PLACES;
        for Wait { hash, .. } in self
            .heat
            .waits
            .part(from, SAMPLED_PLACES)
            .unwrap_or_default()
        {
            busy.add(hash, weight.saturating_mul(parts as u64), now);
        }
    }

    /// The hottest keys, the hottest first. Never two locks at once, never one across an await.
    pub(crate) async fn hottest(&self, most: usize, by: By) -> Vec<Hot<T::Key>> {
        let now = self.now();
        let seen = self.look_at_candidates(now).await;
        let stamp = self.stamp(now);
        let mut ranked: Vec<_> = seen
            .into_iter()
            .filter_map(|(hash, figures)| Some(self.hot(hash, figures?, stamp)))
            .collect();
        ranked.sort_unstable_by_key(|hot| (std::cmp::Reverse(hot.rank(by)), hot.key));
        let mut hottest = Vec::new();
        for (looked, hot) in ranked.into_iter().enumerate() {
            if hottest.len() == most {
                break;
            }
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            // A key that cannot be cloned cannot be shown.
            let key = caught(|| self.lanes.key_of(hot.key)).ok().flatten();
            hottest.extend(key.map(|key| Hot {
                key,
                depth: hot.depth,
                age: hot.age,
                busy: hot.busy,
                busy_error: hot.busy_error,
            }));
        }
        hottest
    }

    /// Looks each candidate of each table up in its lane, and tells the tables who is gone.
    async fn look_at_candidates(&self, now: Instant) -> BTreeMap<u64, Option<Figures>> {
        let heat = &self.heat;
        let deep: Vec<_> = lock(&heat.deep).entries().collect();
        let stalled: Vec<_> = lock(&heat.stalled).entries().collect();
        let mut others: Vec<_> = lock(&heat.busy).hashes().collect();
        others.extend(self.oldest_waits().await.iter().map(|wait| wait.hash));

        let mut seen = BTreeMap::new();
        let all = deep.iter().chain(&stalled).map(|(hash, _)| *hash);
        for (looked, hash) in all.chain(others).enumerate() {
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            seen.entry(hash).or_insert_with(|| self.figures(hash, now));
        }

        let figures = |hash| seen.get(&hash).copied().flatten();
        for (hash, was) in deep {
            let depth = figures(hash).map(|figures| figures.depth as u64);
            lock(&heat.deep).seen(hash, was, depth);
        }
        heat.queries.fetch_add(1, Ordering::Relaxed);
        for (hash, was) in stalled {
            let still = self.still(figures(hash).map(|figures| figures.stalled));
            lock(&heat.stalled).seen(hash, was, still);
        }
        seen
    }

    async fn oldest_waits(&self) -> Vec<Wait> {
        let mut oldest = Vec::new();
        let mut from = 0;
        while let Some(part) = self.heat.waits.part(from, PLACES) {
            from += PLACES;
            oldest.extend(part);
            if oldest.len() > OLDEST_WAITS {
                oldest.select_nth_unstable(OLDEST_WAITS);
                oldest.truncate(OLDEST_WAITS);
            }
            rt::yield_now().await;
        }
        oldest
    }

    /// One look at one lane.
    fn figures(&self, hash: u64, now: Instant) -> Option<Figures> {
        self.lanes.peek_hash(hash, |lane| {
            let waits = match lane.state() {
                State::Running { since, .. } => now.saturating_duration_since(*since),
                _ => Duration::ZERO,
            };
            let parked = lane.oldest_parked().map(|parked| parked.ticket.parked_at);
            let oldest = self.head_stamp(lane).into_iter().chain(parked).min();
            let waited = oldest.map(|parked_at| self.waited(parked_at, now));
            Figures {
                depth: lane.depth(&self.rules),
                age: waited.unwrap_or_default().max(waits),
                waits,
                stalled: lane.is_stalled(),
            }
        })
    }

    /// All that is known of a lane but its key, in the place of which stands its hash.
    fn hot(&self, hash: u64, figures: Figures, now: u64) -> Hot<u64> {
        let (most, least) = lock(&self.heat.busy).spell(hash, now);
        Hot {
            key: hash,
            depth: figures.depth,
            age: figures.age,
            busy: Duration::from_nanos(most).max(figures.waits),
            busy_error: Duration::from_nanos(most - least),
        }
    }
}
