//! The candidates of one process: each has an id of its own in its election.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::store::CandidateId;

/// The candidates that take part, with the keys of their elections.
type Ids = Arc<Mutex<HashSet<(Bytes, CandidateId)>>>;

#[derive(Default)]
pub(crate) struct Candidates(Ids);

/// A candidate that takes part, until this is dropped.
pub(crate) struct TakesPart(Ids, (Bytes, CandidateId));

impl Candidates {
    /// `None` if a candidate with this id takes part already.
    pub(crate) fn take_part(&self, key: Bytes, id: CandidateId) -> Option<TakesPart> {
        let candidate = (key, id);
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = ids.insert(candidate.clone());
        is_new.then(|| TakesPart(Arc::clone(&self.0), candidate))
    }
}

impl Drop for TakesPart {
    fn drop(&mut self) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.remove(&self.1);
    }
}
