//! An accepted message that has not settled, as it is kept in memory.

use std::sync::Arc;

use bytes::Bytes;

use crate::spool::message::Spooled;
use crate::spool::size::size_of;

/// Whether the journal has a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) enum Stored {
    No,
    /// A commit has failed, and may have come through all the same. It must be stored again, and
    /// removed if it settles before.
    Perhaps,
    /// It has it, or was told to store it.
    Yes,
}

#[derive(Debug)]
pub(in crate::spool) struct Entry {
    pub(in crate::spool) message: Spooled,
    /// As `size_of` counts it.
    pub(in crate::spool) size: usize,
    pub(in crate::spool) stored: Stored,
    /// Why the sink has refused it. It goes to the dead letters next.
    pub(in crate::spool) refused: Option<Arc<str>>,
}

impl Entry {
    pub(in crate::spool) fn new(message: Spooled, stored: Stored) -> Self {
        Self {
            size: size_of(&message),
            message,
            stored,
            refused: None,
        }
    }

    pub(in crate::spool) fn is_stored(&self) -> bool {
        self.stored == Stored::Yes
    }

    pub(in crate::spool) fn sequence(&self) -> u64 {
        self.message.id.sequence
    }

    pub(in crate::spool) fn key(&self) -> &Bytes {
        &self.message.key
    }
}
