//! How the keys of leases are called in the database.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::names;

/// Longer keys are named by their hash.
const LONGEST: usize = 64;

/// The names of a namespace: those of each slot begin in a way of their own.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: Bytes,
    /// What stands in front of the names of each slot.
    slots: Vec<Bytes>,
}

impl Names {
    /// For a namespace that was [checked](names::check).
    pub(super) fn new(namespace: Bytes, slots: u16) -> Self {
        let first = names::beside(&namespace, "");
        let slots = match slots {
            1 => vec![first],
            _ => (0..slots).map(|slot| tagged(&first, slot)).collect(),
        };
        Self { namespace, slots }
    }

    pub(super) fn namespace(&self) -> &Bytes {
        &self.namespace
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Where the lease of a key is: always in the same slot.
    pub(super) fn slot(&self, key: &[u8]) -> usize {
        match self.slots.len() {
            1 => 0,
            slots => (fnv1a(key) % slots as u64) as usize,
        }
    }

    /// The key with the last token of a slot.
    pub(super) fn counter(&self, slot: usize) -> Bytes {
        Bytes::from([&self.slots[slot], &b":token"[..]].concat())
    }

    /// Writes the key of a lease.
    pub(super) fn lease(&self, slot: usize, key: &[u8], name: &mut Vec<u8>) {
        name_of_key(&self.slots[slot], b":lease", key, name);
    }
}

/// Writes the name of what belongs to a key. A long key is hashed: `:` and `#` tell one from the
/// other.
pub(crate) fn name_of_key(front: &[u8], what: &[u8], key: &[u8], name: &mut Vec<u8>) {
    name.extend_from_slice(front);
    name.extend_from_slice(what);
    if key.len() > LONGEST {
        name.push(b'#');
        name.extend_from_slice(&Sha256::digest(key));
    } else {
        name.push(b':');
        name.extend_from_slice(key);
    }
}

/// With the number of the slot in the hash tag, which is what is between the first two braces.
fn tagged(front: &[u8], slot: u16) -> Bytes {
    let open = front.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let close = front[open..].iter().position(|byte| *byte == b'}');
    let (head, tail) = front.split_at(close.map_or(front.len(), |close| open + close));
    Bytes::from([head, format!("/{slot}").as_bytes(), tail].concat())
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
        assert_eq!(names.counter(0), "{orders}:token");
        assert_eq!(lease(&names, 0, b""), b"{orders}:lease:");
        assert_eq!(lease(&names, 0, b"a"), b"{orders}:lease:a");
        let (short, long) = ([b'k'; LONGEST], [b'k'; LONGEST + 1]);
        assert_eq!(lease(&names, 0, &short).len(), 15 + LONGEST);
        let hashed = lease(&names, 0, &long);
        assert_eq!(hashed.len(), 15 + 32);
        assert_ne!(lease(&names, 0, &hashed[15..]), hashed);
    }

    #[test]
    fn slots_are_in_the_hash_tag() {
        let names = Names::new("orders".into(), 3);
        assert_eq!(names.counter(2), "{orders/2}:token");
        let names = Names::new("{shop}orders".into(), 2);
        assert_eq!(names.counter(0), "{shop/0}orders:token");
        assert_eq!(lease(&names, 1, b"a"), b"{shop/1}orders:lease:a");
        let names = Names::new("a}{shop}orders".into(), 2);
        assert_eq!(names.counter(1), "a}{shop/1}orders:token");
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
