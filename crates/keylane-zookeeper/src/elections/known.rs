//! What a session knows of elections without a read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::view::View;

/// The elections as this session has read or written them last. They may have changed since: a
/// write that relies on one names the version of its node.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<Bytes, View>>);

impl Known {
    /// Notes how an election was.
    pub(super) fn note(&self, key: &Bytes, view: View) {
        self.lock().insert(key.clone(), view);
    }

    /// Takes what is known of an election: it is about to change, or not needed any more.
    pub(super) fn take(&self, key: &Bytes) -> Option<View> {
        self.lock().remove(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, View>> {
        // Each change of the map is complete before the next one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
