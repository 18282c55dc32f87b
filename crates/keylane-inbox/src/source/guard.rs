//! Counts attempts in the file of start marks, before they start.

use std::sync::Arc;

use keylane::error::BoxError;
use keylane::source::{Outcome, StartGuard};

use super::reader::Position;
use crate::attempts::Marks;

pub(super) struct MarkGuard(pub(super) Arc<Marks>);

impl StartGuard<Position> for MarkGuard {
    fn starts(&self, slot: u32, position: &Position, attempt: u32) -> Result<(), BoxError> {
        Ok(self.0.start(slot, position.sequence, attempt)?)
    }

    fn settles(&self, slot: u32, _: &Position, outcome: Outcome) {
        // What goes back unhandled keeps its count, if it was ever started.
        let keeps = matches!(outcome, Outcome::Returned { attempts, .. } if attempts > 0);
        if !keeps && let Err(error) = self.0.clear(slot) {
            // Its message does not wait any more, so the mark is found, and dropped, at the next
            // open.
            tracing::warn!(target: "keylane", %error, "a start mark was not cleared");
        }
    }
}
