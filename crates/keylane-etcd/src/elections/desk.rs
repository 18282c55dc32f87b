//! What all calls about elections share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::lock;
use keylane_leader::store::{CandidateId, Entry};
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::leases::CarrierId;
use crate::leases::calls::Calls;
use crate::leases::core::Core;

/// How often a call is begun again, because etcd has changed meanwhile.
pub(super) const TRIES: usize = 8;

/// The candidates of this process.
pub(super) struct Desk {
    pub(super) core: Arc<Core>,
    entered: Mutex<HashMap<(Bytes, CandidateId), Place>>,
}

/// Where a candidate of this process is entered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) carrier: CarrierId,
    secs: u64,
    /// When it is gone, unless it is entered again.
    until: Instant,
}

impl Desk {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            entered: Mutex::default(),
        }
    }

    pub(super) fn name_of(&self, key: &Bytes, candidate: &CandidateId) -> Vec<u8> {
        let mut name = self.core.names.candidates(key);
        name.extend_from_slice(candidate.as_str().as_bytes());
        name
    }

    /// Returns a lease of etcd for a candidate: its own, kept alive, or a new one.
    pub(super) async fn place(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        entry: &Entry,
        secs: u64,
    ) -> Result<Place, EtcdError> {
        let now = Instant::now();
        let at = (key.clone(), entry.id.clone());
        let known = {
            let mut entered = lock(&self.entered);
            // A candidate that was given up is entered no more.
            entered.retain(|_, place| place.until > now);
            entered.get(&at).copied().filter(|place| place.secs == secs)
        };
        let carrier = match known {
            Some(known) if calls.keep(known.carrier).await? => known.carrier,
            _ => calls.grant(secs).await?,
        };
        let place = Place {
            carrier,
            secs,
            until: now + Duration::from_secs(secs),
        };
        lock(&self.entered).insert(at, place);
        Ok(place)
    }

    pub(super) fn forget(&self, key: &Bytes, candidate: &CandidateId) {
        lock(&self.entered).remove(&(key.clone(), candidate.clone()));
    }

    pub(super) fn forget_all(&self) {
        lock(&self.entered).clear();
    }
}
