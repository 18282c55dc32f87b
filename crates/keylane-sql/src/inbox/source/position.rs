//! The position of a message in an inbox.

use bytes::Bytes;

use super::super::lane::LaneId;
use super::super::turn::MessageRef;
use super::super::uncommitted::InHand;

/// The name of a message in its inbox.
#[derive(Clone, Debug)]
pub struct SqlPosition {
    /// The sequence of the message in the inbox.
    pub sequence: u64,
    pub(super) nonce: u64,
    pub(super) lane: LaneId,
    /// The last attempt that needs no note.
    pub(super) noted: u32,
    /// The opening of the source that handed it over: a settlement of an older one is stale.
    pub(super) opening: u64,
    /// The key and the producer's id, for the log.
    pub(super) key: Option<Bytes>,
    pub(super) id: Option<Bytes>,
}

impl PartialEq for SqlPosition {
    fn eq(&self, other: &Self) -> bool {
        (self.name(), self.opening) == (other.name(), other.opening)
    }
}

impl Eq for SqlPosition {}

impl SqlPosition {
    pub(super) fn name(&self) -> MessageRef {
        MessageRef {
            sequence: self.sequence,
            nonce: self.nonce,
        }
    }

    pub(super) fn in_hand(&self) -> InHand {
        (self.opening, self.sequence)
    }
}
