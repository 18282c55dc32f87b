//! What names a message, across restarts.

use std::fmt;

/// The name of a message: the same each time it is written to the sink, and never that of another
/// message.
///
/// A message that was delivered, but whose removal from the disk was not yet confirmed when the
/// process died, is written again with the same id. A sink that remembers the ids it has written
/// recognizes the duplicate.
///
/// Each opening of a directory draws a number that is a part of the ids of what it accepts. So a
/// directory that was restored from a backup gives other ids than the one that it was copied from,
/// once both go on.
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
    /// Of the opening of the directory that has accepted the message. A sequence may be used again
    /// by a message of a later epoch, if the earlier one was never on disk.
    pub(super) epoch: Epoch,
    /// The place among the messages of the spool.
    pub(super) sequence: u64,
}

/// An opening of the directory.
///
/// A backup of a directory that is opened goes on from the count and the sequences that it had,
/// while the messages that were accepted after it are at the sink. So the count alone would name
/// two messages with one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Epoch {
    /// How often the directory was opened.
    pub(super) count: u32,
    /// Drawn by this opening.
    pub(super) drawn: u32,
}

impl Epoch {
    fn to_u64(self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.drawn)
    }
}

impl MessageId {
    /// The id as bytes, which sort as the id does.
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
