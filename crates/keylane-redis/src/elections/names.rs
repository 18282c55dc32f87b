//! The names of the keys of elections in the database. All of a namespace are in one slot.

use bytes::Bytes;

use crate::leases::name_of_key;
use crate::names;

/// The names of a namespace that was [checked](names::check).
pub(super) struct Names {
    namespace: Bytes,
    records: Bytes,
    lines: Bytes,
    ends: Bytes,
}

impl Names {
    pub(super) fn new(namespace: Bytes) -> Self {
        let key = |end: &[u8]| names::beside(&namespace, &[end]);
        Self {
            records: key(b"election"),
            lines: key(b"candidates"),
            ends: key(b"candidates-until"),
            namespace,
        }
    }

    pub(super) fn namespace(&self) -> &Bytes {
        &self.namespace
    }

    /// Returns the key of the record of an election, which is also the name of the election.
    pub(super) fn record(&self, key: &[u8]) -> Vec<u8> {
        name(&self.records, key)
    }

    /// Returns the keys of the line of candidates, and of the ends of their entries.
    pub(super) fn candidates(&self, key: &[u8]) -> [Vec<u8>; 2] {
        [name(&self.lines, key), name(&self.ends, key)]
    }

    /// Returns a key in the slot of the namespace that is never written.
    pub(super) fn home(&self) -> Bytes {
        names::beside(&self.namespace, &[b"elections"])
    }

    /// Returns the channel of the changes. Channels are common to all databases of a server.
    pub(super) fn channel(&self, database: i64) -> Bytes {
        names::beside(
            &self.namespace,
            &[b"elections:", database.to_string().as_bytes()],
        )
    }
}

fn name(front: &[u8], key: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    name_of_key(front, key, &mut name);
    name
}
