//! The position of a message in an inbox.

use bytes::Bytes;

/// The name of a message in its inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxPosition {
    /// Its sequence in the inbox.
    pub sequence: u64,
    pub(super) key: Bytes,
    /// The opening of the source that handed it over: a settlement of an older one is stale.
    pub(super) opening: u64,
}
