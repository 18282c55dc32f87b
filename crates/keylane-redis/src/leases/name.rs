//! The names of the keys of leases in the database.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::names;

/// Longer keys are replaced by their hash.
const LONGEST: usize = 64;

/// The names of a namespace. Each slot has its own prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: Bytes,
    slots: Vec<SlotNames>,
}

#[derive(Clone, Debug)]
struct SlotNames {
    /// The key with the last token.
    counter: Bytes,
    /// The prefix of the leases.
    leases: Bytes,
}

impl Names {
    /// Creates the names of a namespace that was [checked](names::check).
    pub(super) fn new(namespace: Bytes, slots: u16) -> Self {
        Self::with(namespace, slots, [b"lease-token", b"lease"])
    }

    /// The same for the terms of elections, in one slot: no lease of a namespace has such a name.
    pub(super) fn of_terms(namespace: Bytes) -> Self {
        Self::with(namespace, 1, [b"term-token", b"term"])
    }

    fn with(namespace: Bytes, slots: u16, [counter, leases]: [&[u8]; 2]) -> Self {
        let key = |slot: u16, end: &[u8]| match slots {
            1 => names::beside(&namespace, &[end]),
            _ => names::beside_in(&namespace, slot, &[end]),
        };
        let slot = |slot| SlotNames {
            counter: key(slot, counter),
            leases: key(slot, leases),
        };
        Self {
            slots: (0..slots).map(slot).collect(),
            namespace,
        }
    }

    pub(super) fn namespace(&self) -> &Bytes {
        &self.namespace
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slot of a key's lease; it is always the same.
    pub(super) fn slot(&self, key: &[u8]) -> usize {
        match self.slots.len() {
            1 => 0,
            slots => (fnv1a(key) % slots as u64) as usize,
        }
    }

    /// Returns the key with the last token of a slot.
    pub(super) fn counter(&self, slot: usize) -> Bytes {
        self.slots[slot].counter.clone()
    }

    /// Writes the key of a lease.
    pub(super) fn lease(&self, slot: usize, key: &[u8], name: &mut Vec<u8>) {
        name_of_key(&self.slots[slot].leases, key, name);
    }
}

/// Writes the name that belongs to a key. A long key is hashed: `:` and `#` tell the two forms
/// apart.
pub(crate) fn name_of_key(front: &[u8], key: &[u8], name: &mut Vec<u8>) {
    name.extend_from_slice(front);
    if key.len() > LONGEST {
        name.push(b'#');
        name.extend_from_slice(&Sha256::digest(key));
    } else {
        name.push(b':');
        name.extend_from_slice(key);
    }
}

/// The hash of Fowler, Noll and Vo. It is the same in all processes and versions.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(names: &Names, slot: usize, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        names.lease(slot, key, &mut name);
        name
    }

    #[test]
    fn names_are_told_apart() {
        let names = Names::new("orders".into(), 1);
        assert_eq!(names.counter(0), "{orders}:keylane:lease-token");
        assert_eq!(lease(&names, 0, b""), b"{orders}:keylane:lease:");
        assert_eq!(lease(&names, 0, b"a"), b"{orders}:keylane:lease:a");
        let (short, long) = ([b'k'; LONGEST], [b'k'; LONGEST + 1]);
        assert_eq!(lease(&names, 0, &short).len(), 23 + LONGEST);
        let hashed = lease(&names, 0, &long);
        assert_eq!(hashed.len(), 23 + 32);
        assert_ne!(lease(&names, 0, &hashed[23..]), hashed);
    }

    #[test]
    fn slots_are_in_the_hash_tag() {
        let names = Names::new("orders".into(), 3);
        assert_eq!(names.counter(2), "{orders/2}:keylane:6:orders:lease-token");
        let names = Names::new("{shop}orders".into(), 2);
        let a = lease(&names, 1, b"a");
        assert_eq!(a, b"{shop/1}:keylane:12:{shop}orders:lease:a");
    }

    #[test]
    fn keys_are_spread_in_a_way_that_stays() {
        let names = Names::new("orders".into(), 8);
        // A change here would let a key have two holders while processes of both versions run.
        let slots = ["", "a", "account-7", "\u{e4}"].map(|key| names.slot(key.as_bytes()));
        assert_eq!(slots, [5, 4, 4, 2]);
        let mut counts = [0; 8];
        for n in 0..8_000 {
            counts[names.slot(format!("account-{n}").as_bytes())] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1_200).contains(count)),
            "{counts:?}"
        );
    }
}
