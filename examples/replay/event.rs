//! What is replayed: a path, what stood there before, what stands there after.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A [`Change`] on its way through a design.
#[derive(Debug)]
pub(crate) struct Event {
    /// Counted from 1 over the whole history, so also rising along each path.
    pub(crate) number: u64,
    pub(crate) change: Change,
    pub(crate) sent: Instant,
}

/// One path in one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: RepoPath,
    /// `None`: the path does not exist.
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

/// A file, a symbolic link or a submodule's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mode: u32,
    pub(crate) object: ObjectId,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06o} {}", self.mode, self.object)
    }
}

/// An object's full name: 20 bytes in a SHA-1 repository, 32 in a SHA-256 one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectId {
    bytes: [u8; 32],
    len: u8,
}

impl ObjectId {
    /// Reads 40 or 64 hexadecimal digits; an abbreviated name is no name.
    pub(crate) fn from_hex(hex: &[u8]) -> Option<Self> {
        if hex.len() != 40 && hex.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(Self {
            bytes,
            len: (hex.len() / 2) as u8,
        })
    }

    /// Git writes "nothing there" as zeros.
    pub(crate) fn is_null(&self) -> bool {
        self.bytes == [0; 32]
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(usize::MAX);
        let hex = self.bytes[..usize::from(self.len)]
            .iter()
            .flat_map(|b| [b >> 4, b & 15]);
        hex.take(digits)
            .try_for_each(|nibble| write!(f, "{nibble:x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A path as git stores it: bytes, in no promised encoding. This is the key; clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RepoPath(Arc<[u8]>);

impl RepoPath {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for RepoPath {
    /// On one line, whatever the bytes are: control characters and invalid UTF-8 come out escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            chunk
                .invalid()
                .iter()
                .try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
