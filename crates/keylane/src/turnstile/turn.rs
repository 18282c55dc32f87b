//! The turn of a key.

use std::fmt;

use super::shared::Owner;
use crate::engine::Quiet;

/// The turn of a key: while it lives, no other of the key does.
///
/// Dropped, also while a panic unwinds, the next place of its lane has its turn.
#[must_use = "a turn that is dropped is over"]
pub struct Turn<K: Eq + Clone>(Owner<K>);

impl<K: Eq + Clone> Turn<K> {
    #[inline]
    pub(super) fn new(owner: Owner<K>) -> Self {
        Self(owner)
    }

    /// The key; `None` if it entered without one.
    pub fn key(&self) -> Option<&K> {
        self.0.key.as_ref().map(Quiet::get)
    }
}

impl<K: Eq + Clone> Drop for Turn<K> {
    #[inline]
    fn drop(&mut self) {
        let Owner { shared, key, hash } = &self.0;
        shared.end(key.as_ref(), *hash, true);
    }
}

impl<K: Eq + Clone> fmt::Debug for Turn<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
