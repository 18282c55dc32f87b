//! The lanes that an operator has paused, those that are halted, and those that fail.

use keylane_lanes::State;
use keylane_rt as rt;

use super::LaneTable;
use crate::engine::lane::Lane;
use crate::observe::hot_keys::Stop;
use crate::types::Spec;

/// Lanes looked at before others may run.
const BATCH: usize = 64;

impl<T: Spec> LaneTable<T> {
    /// Keys that are stopped, the one that was stopped last first.
    pub(crate) async fn stopped(&self, most: usize, stop: Stop) -> Vec<T::Key> {
        let hot_keys = &self.probe.hot_keys;
        let still_stopped = |hash| {
            if self.is_stopped(stop, hash) {
                return true;
            }
            hot_keys.not_stopped(stop, hash);
            // It may have been stopped again between the two.
            if self.is_stopped(stop, hash) {
                hot_keys.stopped(stop, hash);
            }
            false
        };
        self.keys_of(hot_keys.maybe_stopped(stop), most, still_stopped)
            .await
    }

    /// Keys whose head waits for its next attempt or for a sink, the oldest head first.
    pub(crate) async fn failing(&self, most: usize) -> Vec<T::Key> {
        let fails = |lane: &Lane<T>| {
            let state = lane.state();
            matches!(state, State::Backoff { .. }) && !state.is_unleased() && !lane.is_paused()
        };
        let fails = |hash| self.lanes.peek_hash(hash, fails) == Some(true);
        self.keys_of(self.probe.hot_keys.maybe_stalled(), most, fails)
            .await
    }

    /// The keys of the first `most` lanes of which this is so. Never two locks at once, never one
    /// across an await.
    async fn keys_of(
        &self,
        hashes: Vec<u64>,
        most: usize,
        is_so: impl Fn(u64) -> bool,
    ) -> Vec<T::Key> {
        let mut keys = Vec::new();
        for (looked, hash) in hashes.into_iter().enumerate() {
            if keys.len() == most {
                break;
            }
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            if is_so(hash) {
                keys.extend(self.key_of(hash));
            }
        }
        keys
    }

    fn is_stopped(&self, stop: Stop, hash: u64) -> bool {
        let is_so = self.lanes.peek_hash(hash, |lane| match stop {
            Stop::Paused => lane.is_paused(),
            Stop::Halted => matches!(lane.state(), State::Halted { .. }),
        });
        is_so == Some(true)
    }
}
