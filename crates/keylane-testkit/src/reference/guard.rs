//! The attempts that the reference server counts.

use keylane::error::BoxError;
use keylane::source::{Outcome, StartGuard};

use super::place::Place;
use super::server::ReferenceServer;

/// Counts attempts at the server.
pub(super) struct AttemptCounter {
    pub(super) server: ReferenceServer,
}

impl StartGuard<Place> for AttemptCounter {
    fn starts(&self, _slot: u32, place: &Place, attempt: u32) -> Result<(), BoxError> {
        match self.server.change(|state| state.start(*place, attempt)) {
            true => Ok(()),
            false => Err("scripted refusal of an attempt".into()),
        }
    }

    fn settles(&self, _slot: u32, place: &Place, outcome: Outcome) {
        if let Outcome::Returned { attempts, .. } = outcome {
            self.server
                .change(|state| state.set_attempts(*place, attempts));
        }
    }
}
