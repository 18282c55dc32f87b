//! An accepted message that has not settled, in memory.

use std::sync::Arc;

use bytes::Bytes;

use crate::message::Spooled;
use crate::size::size_of;

/// Whether the journal has a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    No,
    /// A commit failed, and may have come through all the same. The message must be stored again,
    /// and removed if it settles before.
    Perhaps,
    /// The journal has it, or has the order to store it.
    Yes,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) message: Spooled,
    /// Its size by `size_of`.
    pub(crate) size: usize,
    pub(crate) stored: Stored,
    /// The reason of the sink to refuse it. It goes to the dead letters next.
    pub(crate) refused: Option<Arc<str>>,
}

impl Entry {
    pub(crate) fn new(message: Spooled, stored: Stored) -> Self {
        Self {
            size: size_of(&message),
            message,
            stored,
            refused: None,
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.stored == Stored::Yes
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.message.id.sequence
    }

    pub(crate) fn key(&self) -> &Bytes {
        &self.message.key
    }
}
