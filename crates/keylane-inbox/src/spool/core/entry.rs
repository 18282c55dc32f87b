//! An accepted message that has not settled, as it is kept in memory.

use std::sync::Arc;

use bytes::Bytes;

use crate::spool::message::Spooled;
use crate::spool::size::size_of;

#[derive(Debug)]
pub(in crate::spool) struct Entry {
    pub(in crate::spool) message: Spooled,
    /// As `size_of` counts it.
    pub(in crate::spool) size: usize,
    /// The journal has it, or was told to store it: it must be told to remove it.
    pub(in crate::spool) is_stored: bool,
    /// Why the sink has refused it. It goes to the dead letters next.
    pub(in crate::spool) refused: Option<Arc<str>>,
}

impl Entry {
    pub(in crate::spool) fn new(message: Spooled, is_stored: bool) -> Self {
        Self {
            size: size_of(&message),
            message,
            is_stored,
            refused: None,
        }
    }

    pub(in crate::spool) fn sequence(&self) -> u64 {
        self.message.id.sequence
    }

    pub(in crate::spool) fn key(&self) -> &Bytes {
        &self.message.key
    }
}
