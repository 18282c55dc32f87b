//! The attempts of a source that decodes, as its inner source counts them.

use std::sync::Arc;

use super::position::DecodedPosition;
use crate::{Hold, Outcome, StartGuard, StartLater};

/// Tells the source of raw messages of attempts.
pub(super) struct RawGuard<P>(pub(super) Arc<dyn StartGuard<P>>);

impl<P> StartGuard<DecodedPosition<P>> for RawGuard<P> {
    fn starts(
        &self,
        slot: u32,
        position: &DecodedPosition<P>,
        attempt: u32,
    ) -> Result<(), StartLater> {
        self.0.starts(slot, &position.inner, attempt)
    }

    fn settles(&self, slot: u32, position: &DecodedPosition<P>, outcome: Outcome) {
        self.0.settles(slot, &position.inner, outcome);
    }

    fn holds(&self, position: &DecodedPosition<P>) -> bool {
        self.0.holds(&position.inner)
    }

    fn hold(&self) -> Option<Hold> {
        self.0.hold()
    }
}
