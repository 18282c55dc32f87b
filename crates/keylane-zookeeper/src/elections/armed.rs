//! Watches that are set and have not fired.
//!
//! A candidate stops its wait each time it is entered again. Its watches stay, so that at rest it
//! only reads the election.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::select_all;
use keylane_leader::store::{CandidateId, Election};
use zookeeper_client::{OneshotWatcher, WatchedEvent};

use super::lineup::Watches;

type Fires = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// The watches of one that waits.
pub(crate) struct Armed {
    pub(super) watches: Watches,
    /// The election as it was read when they were set.
    pub(super) seen: Election,
    fires: Vec<Fires>,
}

impl Armed {
    pub(super) fn new(watches: Watches, seen: Election, set: Vec<OneshotWatcher>) -> Self {
        let fires = set.into_iter().map(|one| Box::pin(one.changed()) as Fires);
        Self {
            watches,
            seen,
            fires: fires.collect(),
        }
    }

    /// Waits until one of them fires, or the session is over.
    pub(super) async fn fired(&mut self) {
        select_all(&mut self.fires).await;
    }
}

/// The watches of the candidates of a session, while nothing waits for them.
#[derive(Default)]
pub(crate) struct AllArmed(Mutex<HashMap<(Bytes, CandidateId), Armed>>);

impl AllArmed {
    /// Takes the watches of a candidate.
    pub(super) fn take(&self, key: &Bytes, id: &CandidateId) -> Option<Armed> {
        self.lock().remove(&(key.clone(), id.clone()))
    }

    /// Lets a candidate wait for its watches. If this is dropped, they are kept.
    pub(super) async fn wait(&self, key: &Bytes, id: &CandidateId, armed: Armed) {
        let mut kept = Kept {
            all: self,
            of: (key.clone(), id.clone()),
            armed: Some(armed),
        };
        if let Some(armed) = &mut kept.armed {
            armed.fired().await;
        }
        kept.armed = None;
    }

    /// Drops the watches of a candidate whose node was this one.
    pub(crate) fn forget(&self, path: &str) {
        let mut all = self.lock();
        all.retain(|_, armed| armed.watches.nodes.first().is_none_or(|own| own != path));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Bytes, CandidateId), Armed>> {
        // Each change of the map is complete before the next one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches that a candidate waits for.
struct Kept<'a> {
    all: &'a AllArmed,
    of: (Bytes, CandidateId),
    armed: Option<Armed>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            self.all.lock().insert(self.of.clone(), armed);
        }
    }
}
