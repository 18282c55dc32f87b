//! The attempts that the reference server counts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use keylane::source::{NotedAttempts, Outcome, StartGuard, StartLater};

use super::place::Place;
use super::server::ReferenceServer;

/// Counts attempts at the server.
pub(super) struct AttemptCounter {
    pub(super) server: ReferenceServer,
    notes: Mutex<HashMap<Place, NotedAttempts>>,
}

impl AttemptCounter {
    pub(super) fn new(server: ReferenceServer) -> Self {
        Self {
            server,
            notes: Mutex::default(),
        }
    }

    /// Returns how often this attempt was asked for before, while it is not noted.
    fn ask(&self, place: Place, attempt: u32) -> Option<u32> {
        let asks = self.server.change(|state| state.asks_until_noted());
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = notes.entry(place).or_default();
        let before = notes.ask(attempt)?;
        if before >= asks {
            notes.note(attempt);
            return None;
        }
        Some(before)
    }
}

impl StartGuard<Place> for AttemptCounter {
    fn starts(&self, _slot: u32, place: &Place, attempt: u32) -> Result<(), StartLater> {
        if let Some(before) = self.ask(*place, attempt) {
            return Err(StartLater::until_noted(before));
        }
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
