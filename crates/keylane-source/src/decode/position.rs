//! The position of a delivery of a source that decodes.

use std::fmt;

use crate::Generation;

/// The position of a message that was [decoded](crate::Source::decode): its position in the source
/// of raw messages, and its raw key. Two positions are equal if they name the same delivery.
#[derive(Clone)]
pub struct DecodedPosition<P> {
    pub(super) inner: P,
    /// The hash of its raw key, if it has one.
    pub(super) key: Option<u64>,
    pub(super) generation: Generation,
}

impl<P> DecodedPosition<P> {
    /// Returns the position in the source of raw messages.
    pub fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: PartialEq> PartialEq for DecodedPosition<P> {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<P: Eq> Eq for DecodedPosition<P> {}

impl<P: fmt::Debug> fmt::Debug for DecodedPosition<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecodedPosition").field(&self.inner).finish()
    }
}
