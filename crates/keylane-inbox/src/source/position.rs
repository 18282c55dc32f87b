//! The position of a message in an inbox.

use bytes::Bytes;

/// The name of a message in its inbox.
#[derive(Clone, Debug)]
pub struct InboxPosition {
    /// Its sequence in the inbox.
    pub sequence: u64,
    pub(super) key: Bytes,
    /// The producer's id, for the log.
    pub(super) id: Option<Bytes>,
    /// The opening of the source that handed it over: a settlement of an older one is stale.
    pub(super) opening: u64,
}

impl PartialEq for InboxPosition {
    fn eq(&self, other: &Self) -> bool {
        (self.sequence, self.opening) == (other.sequence, other.opening)
    }
}

impl Eq for InboxPosition {}

impl InboxPosition {
    /// The text for the log.
    pub(super) fn place(&self) -> String {
        format!("sequence {}", self.sequence)
    }
}
