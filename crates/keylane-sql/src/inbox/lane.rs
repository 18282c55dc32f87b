//! The lane of a key: its name in the tables.

use std::fmt;
use std::hash::{Hash, Hasher};

use keylane_inbox::NewMessage;
use sha2::{Digest, Sha256};

/// The SHA-256 of a key, so that keys of any length have rows of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneId(pub(crate) [u8; 32]);

impl Hash for LaneId {
    /// Eight bytes of a hash are enough for a table.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    }
}

impl LaneId {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Reads a lane from a database. Bytes of another length are not a lane of this crate.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.try_into().unwrap_or([0; 32]))
    }
}

impl AsRef<[u8]> for LaneId {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// Returns the marks by which a repeat of a message is recognised: its id, and its key with its
/// version.
pub(crate) fn marks(lane: LaneId, message: &NewMessage) -> impl Iterator<Item = [u8; 32]> {
    let id = message.id.as_ref().map(|id| {
        let mut hasher = Sha256::new_with_prefix(b"id");
        hasher.update(id.as_bytes());
        hasher.finalize().into()
    });
    let version = message.version.map(|version| {
        let mut hasher = Sha256::new_with_prefix(b"version");
        hasher.update(lane.0);
        hasher.update(version.to_le_bytes());
        hasher.finalize().into()
    });
    id.into_iter().chain(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_what_they_name() {
        let marks = |key: &str, message: NewMessage| -> Vec<_> {
            super::marks(LaneId::of(key.as_bytes()), &message).collect()
        };
        let message = |key: &str| NewMessage::new(key.to_owned(), "");
        assert!(marks("a", message("a")).is_empty());
        let by_id = marks("a", message("a").id("x"));
        assert_eq!(by_id, marks("b", message("b").id("x")), "whatever the key");
        let by_version = marks("a", message("a").version(1));
        assert_ne!(by_version, marks("b", message("b").version(1)));
        assert_ne!(by_version, marks("a", message("a").version(2)));
        let both = marks("a", message("a").id("x").version(1));
        assert_eq!(both, [by_id, by_version].concat());
    }
}
