//! The watermarks of lanes whose keys move to other lanes.

use keylane_lanes::{Effects, Opening};
use keylane_rt::lock;

use super::LaneTable;
use crate::engine::lane::open;
use crate::types::Spec;

impl<T: Spec> LaneTable<T> {
    /// Sets the watermark of a lane. False: the lane is empty.
    pub(crate) fn mark_end(&self, lane: &T::Key, hash: u64, accepted_at: u64) -> bool {
        let marked = self.lanes.with(hash, lane, |lane| {
            let mut effects = Effects::new();
            let holds = lane.set_watermark(accepted_at, &self.rules);
            if holds {
                // The senders at this gate may have another lane now.
                lane.renew_gate(&self.rules, &mut effects);
            }
            (holds, effects.opening)
        });
        let (holds, opening) = marked.unwrap_or((false, Opening::Nothing));
        open(opening);
        holds
    }

    pub(crate) fn is_marked(&self, lane: &T::Key, hash: u64) -> bool {
        let marked = self.lanes.peek(hash, lane, |lane| lane.has_watermark());
        // A lane that has just drained is still to be reported to the router.
        marked == Some(true) || lock(&self.drained).contains(lane)
    }

    /// Whether a lane has drained that the router does not know of.
    pub(crate) fn has_drained(&self) -> bool {
        self.places.is_some() && !lock(&self.drained).is_empty()
    }

    pub(crate) fn take_drained(&self) -> Vec<T::Key> {
        std::mem::take(&mut *lock(&self.drained))
    }

    /// Reports a lane that drained up to its watermark. Under the shard's lock; wakes the router
    /// later.
    #[cold]
    pub(crate) fn note_drained(&self, key: &T::Key) {
        lock(&self.drained).push(key.clone());
    }
}
