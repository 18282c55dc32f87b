//! The size of a message, for limits in bytes.

use super::journal::encoded_len;
use super::message::Spooled;

/// The overhead of a message beside its bytes: its place in the spool's tables, and in those of the
/// store.
pub(super) const OVERHEAD: usize = 128;

/// Returns the size of its record on the disk, and the overhead. The same in memory, so that a
/// message has one size.
pub(super) fn size_of(message: &Spooled) -> usize {
    encoded_len(&message.key, &message.payload, &message.headers) + OVERHEAD
}
