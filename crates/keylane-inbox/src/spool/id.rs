//! What names a message, across restarts.

use std::fmt;

/// The name of a message: the same each time it is written to the sink, and never that of another
/// message.
///
/// A message that was delivered, but whose removal from the disk was not yet confirmed when the
/// process died, is written again with the same id. A sink that remembers the ids it has written
/// recognizes the duplicate.
///
/// Ids of one spool sort in the order in which their messages were accepted.
///
/// # Examples
///
/// ```
/// use keylane_inbox::spool::MessageId;
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
    /// How often the directory was opened. A sequence may be used again by a message of a later
    /// epoch, if the earlier one was never on disk.
    pub(super) epoch: u32,
    /// The place among the messages of the spool.
    pub(super) sequence: u64,
}

impl MessageId {
    /// The id as bytes, which sort as the id does.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.spool.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[12..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// As hexadecimal numbers, at most 42 characters: `spool-epoch-sequence`.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}-{:x}-{:x}",
            self.spool, self.epoch, self.sequence
        )
    }
}
