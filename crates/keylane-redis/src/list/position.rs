//! The position of a delivery.

use std::fmt;

use bytes::Bytes;

use super::outbox::{Place, Token};

/// One hand-out of an element.
#[derive(Clone, PartialEq, Eq)]
pub struct ListPosition {
    pub(super) place: Place,
    pub(super) token: Token,
    pub(super) key: Option<Bytes>,
    /// Attempts up to this one may start without a note.
    pub(super) noted: u32,
}

impl ListPosition {
    /// Returns the fencing token of the hand-out: it is higher than those of all earlier hand-outs
    /// of the list.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl fmt::Debug for ListPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListPosition").field(&self.token).finish()
    }
}
