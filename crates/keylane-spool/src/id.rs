//! The id of a message, across restarts.

use std::fmt;

/// The id of a message: the same each time it is written to the sink, and different from that of
/// every other message.
///
/// A message that was delivered, but whose removal from the disk was not yet confirmed when the
/// process died, is written again with the same id. A sink that remembers the ids of its writes
/// recognizes the duplicate.
///
/// Each opening of a directory draws a number that is a part of the ids of its messages. So a
/// directory that was restored from a backup draws other ids than the original, once both go on.
///
/// Ids of one spool sort in the order in which their messages were accepted.
///
/// # Examples
///
/// ```
/// use keylane_spool::MessageId;
///
/// fn row(id: MessageId) -> String {
///     format!("insert into seen (id) values ('{id}') on conflict do nothing")
/// }
/// # let _ = row;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Drawn at random when the directory was made, or for each opening of a spool without one.
    pub(super) spool: u64,
    /// The opening of the directory that accepted the message. A message of a later epoch may have
    /// the same sequence, if the earlier one was never on the disk.
    pub(super) epoch: Epoch,
    /// The place among the messages of the spool.
    pub(super) sequence: u64,
}

/// An opening of the directory.
///
/// An opened backup of a directory goes on from the count and the sequences that it had, while
/// messages that were accepted after it are at the sink. So the count alone would give two messages
/// one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Epoch {
    /// How often the directory was opened.
    pub(super) count: u32,
    /// The number that this opening drew.
    pub(super) drawn: u32,
}

impl Epoch {
    fn to_u64(self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.drawn)
    }
}

impl MessageId {
    /// Returns the id as bytes, which sort as the id does.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.spool.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_u64().to_be_bytes());
        bytes[16..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// As hexadecimal numbers, at most 50 characters: `spool-epoch-sequence`.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}-{:x}-{:x}",
            self.spool,
            self.epoch.to_u64(),
            self.sequence
        )
    }
}
