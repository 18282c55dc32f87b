//! The permit of a key.

use std::fmt;

use keylane_rt::unwind::Quiet;

use super::shared::Claim;

/// The permit of a key: while it exists, the key has no other.
///
/// When it is dropped, also by a panic that unwinds, it is the turn of the next waiter of its key.
#[must_use = "a permit that is dropped is given back"]
pub struct KeyedPermit<K: Eq + Clone>(Claim<K>);

impl<K: Eq + Clone> KeyedPermit<K> {
    #[inline]
    pub(super) fn new(claim: Claim<K>) -> Self {
        Self(claim)
    }

    /// Returns the key. `None` if the permit was acquired without one.
    pub fn key(&self) -> Option<&K> {
        self.0.key.as_ref().map(Quiet::get)
    }
}

impl<K: Eq + Clone> Drop for KeyedPermit<K> {
    #[inline]
    fn drop(&mut self) {
        let Claim { shared, key, hash } = &self.0;
        shared.release(key.as_ref(), *hash, true);
    }
}

impl<K: Eq + Clone> fmt::Debug for KeyedPermit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPermit").finish_non_exhaustive()
    }
}
