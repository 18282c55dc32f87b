//! Feeding the tables of hot keys, and asking them.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane_lanes::State;
use keylane_rt as rt;
use keylane_rt::clock::Instant;

use super::LaneTable;
use crate::observe::hot_keys::{DepthFilter, Wait};
use crate::observe::{HotBy, HotKey};
use crate::types::Spec;

/// Candidates looked at, or slots of handlers read, before others may run.
const BATCH: usize = 64;
const SLOTS: usize = 1_024;

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

impl<T: Spec> LaneTable<T> {
    /// The router has parked a message, and now the lane is this deep.
    #[inline]
    pub(crate) fn note_depth(&self, filter: &mut DepthFilter, hash: u64, depth: usize) {
        let depth_of = |hash| {
            self.lanes
                .peek_hash(hash, |lane| lane.depth(&self.rules) as u64)
        };
        self.probe.hot_keys.deepened(filter, hash, depth, depth_of);
    }

    /// A head comes to wait for time or for a decision.
    pub(crate) fn note_stalled(&self, hash: u64, accepted: u64) {
        let is_stalled = |hash| self.lanes.peek_hash(hash, |lane| lane.state().is_stalled());
        self.probe.hot_keys.stalled(hash, accepted, is_stalled);
    }

    /// The hottest keys, the hottest first. Never two locks at once, never one across an await.
    pub(crate) async fn hottest(&self, most: usize, by: HotBy) -> Vec<HotKey<T::Key>> {
        let now = self.clocks.now();
        let seen = self.look_at_candidates(now).await;
        let stamp = self.clocks.stamp(now);
        let mut ranked: Vec<_> = seen
            .into_iter()
            .filter_map(|(hash, figures)| Some(self.hot_key(hash, figures?, stamp)))
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
            let key = self.key_of(hot.key);
            hottest.extend(key.map(|key| HotKey {
                key,
                depth: hot.depth,
                age: hot.age,
                busy: hot.busy,
                busy_error: hot.busy_error,
            }));
        }
        hottest
    }

    /// Looks up each candidate of each table in its lane, and updates the tables.
    async fn look_at_candidates(&self, now: Instant) -> BTreeMap<u64, Option<Figures>> {
        let hot_keys = &self.probe.hot_keys;
        let candidates = hot_keys.candidates();
        let waits = self.oldest_waits().await;
        let waiting = waits.iter().map(|wait| wait.hash);

        let mut seen = BTreeMap::new();
        for (looked, hash) in candidates.hashes().chain(waiting).enumerate() {
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            seen.entry(hash).or_insert_with(|| self.figures(hash, now));
        }

        let figures = |hash| seen.get(&hash).copied().flatten();
        let depth_of = |hash| figures(hash).map(|figures| figures.depth as u64);
        let is_stalled = |hash| figures(hash).map(|figures| figures.stalled);
        hot_keys.update(&candidates, depth_of, is_stalled);
        seen
    }

    async fn oldest_waits(&self) -> Vec<Wait> {
        let mut oldest = Vec::new();
        let mut from = 0;
        while let Some(part) = self.probe.hot_keys.waits(from, SLOTS) {
            from += SLOTS;
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
            let parked = lane
                .parked()
                .oldest()
                .map(|parked| parked.envelope.accepted_at);
            let oldest = self.head_accepted_at(lane).into_iter().chain(parked).min();
            let waited = oldest.map(|accepted_at| self.clocks.waited(accepted_at, now));
            Figures {
                depth: lane.depth(&self.rules),
                age: waited.unwrap_or_default().max(waits),
                waits,
                stalled: lane.state().is_stalled(),
            }
        })
    }

    /// All that is known of a lane, with its hash in the place of its key.
    fn hot_key(&self, hash: u64, figures: Figures, now: u64) -> HotKey<u64> {
        let (most, least) = self.probe.hot_keys.busy_time(hash, now);
        HotKey {
            key: hash,
            depth: figures.depth,
            age: figures.age,
            busy: Duration::from_nanos(most).max(figures.waits),
            busy_error: Duration::from_nanos(most - least),
        }
    }
}
