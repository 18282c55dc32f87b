//! The lanes that an operator has paused.

use keylane_rt as rt;
use keylane_rt::unwind::caught;

use super::LaneTable;
use crate::types::Spec;

/// Lanes looked at before others may run.
const BATCH: usize = 64;

impl<T: Spec> LaneTable<T> {
    /// Keys that are paused, the one that was paused last first. Never two locks at once, never one
    /// across an await.
    pub(crate) async fn paused(&self, most: usize) -> Vec<T::Key> {
        let mut keys = Vec::new();
        for (looked, hash) in self.probe.hot_keys.maybe_paused().into_iter().enumerate() {
            if keys.len() == most {
                break;
            }
            if looked % BATCH == BATCH - 1 {
                rt::yield_now().await;
            }
            if self.lanes.peek_hash(hash, |lane| lane.is_paused()) != Some(true) {
                self.probe.hot_keys.not_paused(hash);
                // It may have been paused again between the two.
                if self.lanes.peek_hash(hash, |lane| lane.is_paused()) == Some(true) {
                    self.probe.hot_keys.paused(hash);
                }
                continue;
            }
            // A key that cannot be cloned cannot be shown.
            keys.extend(caught(|| self.lanes.key_of(hash)).ok().flatten());
        }
        keys
    }
}
