//! Counts attempts in the file of start marks, before they start.

use std::sync::Arc;

use keylane_source::{Outcome, StartGuard, StartLater};

use super::position::InboxPosition;
use crate::attempts::Marks;

pub(super) struct MarkGuard(pub(super) Arc<Marks>);

impl StartGuard<InboxPosition> for MarkGuard {
    fn starts(&self, slot: u32, position: &InboxPosition, attempt: u32) -> Result<(), StartLater> {
        self.0.start(slot, position.sequence, attempt).map_err(|error| {
            tracing::error!(target: "keylane", %error, "could not count an attempt, will retry");
            error.into()
        })
    }

    fn settles(&self, slot: u32, position: &InboxPosition, outcome: Outcome) {
        let told = match outcome {
            Outcome::Returned { attempts, .. } => {
                self.0.give_back(slot, position.sequence, attempts)
            }
            // A mark that stays is dropped at the next open, unless the letter of its message waits
            // again by then. The same applies to a mark of a message that became a letter before it
            // started.
            _ => self
                .0
                .settle(slot)
                .and_then(|()| self.0.forget(&[position.sequence])),
        };
        if let Err(error) = told {
            tracing::warn!(target: "keylane", %error, "a start mark could not be updated");
        }
    }
}
