//! Where the senders of full lanes wait.

use super::LaneTable;
use crate::engine::lane::Gate;
use crate::types::Spec;

impl<T: Spec> LaneTable<T> {
    /// The gate where senders wait while too many rates are remembered.
    #[inline]
    pub(crate) fn rate_gate(&self) -> Option<Gate> {
        self.rates.as_ref()?.gate()
    }

    /// The gate of this key, if its lane is full.
    #[inline]
    pub(crate) fn gate(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        match &self.places {
            None => self.gate_of(hash, key),
            Some(_) => self.gate_of_place(hash, key),
        }
    }

    /// The gate of a lane, where a reshard may change the number of lanes.
    #[cold]
    pub(crate) fn gate_of_place(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        let places = self.places.as_ref()?;
        places.gate(key).or_else(|| {
            let (lane, hash) = places.lane(key, hash);
            self.gate_of(hash, &lane)
        })
    }

    #[inline]
    pub(crate) fn gate_of(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        if !self.room.may_be_full(hash) {
            return None;
        }
        self.lanes
            .peek(hash, key, |lane| lane.gate().cloned())
            .flatten()
    }

    /// Whether the lane of this key waits for this version. The sender of that version must not
    /// wait at the gate, because the senders in front of it wait for its message.
    pub(crate) fn is_awaited(&self, hash: u64, key: &T::Key, version: u64) -> bool {
        let awaited = self.lanes.peek(hash, key, |lane| lane.awaits(version));
        awaited.unwrap_or(false)
    }
}
