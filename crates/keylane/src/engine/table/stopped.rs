//! The lanes that an operator has paused, those that are halted, and those that fail.

use keylane_lanes::State;
use keylane_rt as rt;
use keylane_rt::unwind::caught;

use super::LaneTable;
use crate::engine::lane::Lane;
use crate::observe::hot_keys::Stop;
use crate::types::Spec;

/// Lanes looked at before others may run.
const BATCH: usize = 64;

impl<T: Spec> LaneTable<T> {
    /// Keys that are stopped, the one that was stopped last first. Never two locks at once, never
    /// one across an await.
    pub(crate) async fn stopped(&self, most: usize, stop: Stop) -> Vec<T::Key> {
        let (mut keys, hot_keys) = (Vec::new(), &self.probe.hot_keys);
        for (looked, hash) in hot_keys.maybe_stopped(stop).into_iter().enumerate() {
            if keys.len() == most {
                break;
            }
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            if !self.is_stopped(stop, hash) {
                hot_keys.not_stopped(stop, hash);
                // It may have been stopped again between the two.
                if self.is_stopped(stop, hash) {
                    hot_keys.stopped(stop, hash);
                }
                continue;
            }
            // A key that cannot be cloned cannot be shown.
            keys.extend(caught(|| self.lanes.key_of(hash)).ok().flatten());
        }
        keys
    }

    /// Keys whose head waits for its next attempt or for a sink, the oldest head first. The same
    /// holds for the locks.
    pub(crate) async fn failing(&self, most: usize) -> Vec<T::Key> {
        let mut keys = Vec::new();
        for (looked, hash) in self.probe.hot_keys.maybe_stalled().into_iter().enumerate() {
            if keys.len() == most {
                break;
            }
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            let fails = |lane: &Lane<T>| {
                let state = lane.state();
                matches!(state, State::Backoff { .. }) && !state.is_unleased() && !lane.is_paused()
            };
            if self.lanes.peek_hash(hash, fails) == Some(true) {
                keys.extend(caught(|| self.lanes.key_of(hash)).ok().flatten());
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
