//! Reports attempts to a source by position, where the engine knows slots.

use std::sync::Arc;

use keylane_rt::{Mutex, lock};
use keylane_source::{Hold, Outcome, StartGuard, StartLater};

use crate::engine::SlotGuard;

/// The positions behind the slots, for a source that counts attempts.
pub(super) struct PositionGuard<P> {
    guard: Arc<dyn StartGuard<P>>,
    positions: Mutex<Vec<Option<P>>>,
}

impl<P: Clone> PositionGuard<P> {
    pub(super) fn new(guard: Arc<dyn StartGuard<P>>) -> Self {
        Self {
            guard,
            positions: Mutex::new(Vec::new()),
        }
    }

    /// A message is about to be placed.
    pub(super) fn set(&self, slot: u32, position: P) {
        let mut positions = lock(&self.positions);
        let index = slot as usize;
        if positions.len() <= index {
            positions.resize_with(index + 1, || None);
        }
        positions[index] = Some(position);
    }

    /// Whether the source has what it handed over with this position.
    pub(super) fn holds(&self, position: &P) -> bool {
        self.guard.holds(position)
    }

    /// For how long the source has what it handed over.
    pub(super) fn hold(&self) -> Option<Hold> {
        self.guard.hold()
    }

    fn get(&self, slot: u32) -> Option<P> {
        lock(&self.positions).get(slot as usize)?.clone()
    }
}

impl<P: Clone + Send + Sync> SlotGuard for PositionGuard<P> {
    fn starts(&self, slot: u32, attempt: u32) -> Result<(), StartLater> {
        let position = self.get(slot).ok_or("its slot is free")?;
        self.guard.starts(slot, &position, attempt)
    }

    fn settles(&self, slot: u32, outcome: Outcome) {
        if let Some(position) = self.get(slot) {
            self.guard.settles(slot, &position, outcome);
        }
    }
}
