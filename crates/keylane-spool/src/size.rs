//! How large a message is, where a limit in bytes counts it.

use super::journal::encoded_len;
use super::message::Spooled;

/// What a message takes beside its bytes: its place in the spool's tables, and in those of the
/// store.
pub(super) const OVERHEAD: usize = 128;

/// Its record on the disk, and the overhead. The same in memory, so that a message has one size.
pub(super) fn size_of(message: &Spooled) -> usize {
    encoded_len(&message.key, &message.payload, &message.headers) + OVERHEAD
}
