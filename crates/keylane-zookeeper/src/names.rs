//! The names of nodes.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Longer names are replaced by the hash of their key.
const LONGEST: usize = 200;

/// The paths below the root of a store.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: String,
}

impl Paths {
    /// Creates the paths below a root that was checked.
    pub(crate) fn new(root: String) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns the folders that must exist.
    pub(crate) fn folders(&self) -> [String; 3] {
        ["leases", "grants", "elections"].map(|name| format!("{}/{name}", self.root))
    }

    /// Returns the node of a lease, which exists while the lease is held.
    pub(crate) fn lease(&self, key: &[u8]) -> String {
        format!("{}/leases/{}", self.root, name_of(key))
    }

    /// Returns the node of a grant, which exists while the lease is held under this grant.
    pub(crate) fn grant(&self, guard: &str) -> String {
        format!("{}/grants/{guard}", self.root)
    }

    /// Returns the node that a session makes anew to show that it is alive.
    pub(crate) fn beat(&self, session: i64) -> String {
        format!("{}/grants/{session:016x}", self.root)
    }

    /// Returns the node of the store's history.
    pub(crate) fn history(&self) -> String {
        format!("{}/history", self.root)
    }

    /// Returns the node of an election.
    pub(crate) fn election(&self, key: &[u8]) -> String {
        format!("{}/elections/{}", self.root, name_of(key))
    }
}

/// Returns the name that belongs to a key, and to no other one. `k` and `h` tell the two forms
/// apart.
fn name_of(key: &[u8]) -> String {
    let mut name = String::from("k");
    for byte in key {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(*byte));
            }
            _ => push_hex(&mut name, "%", *byte),
        }
        if name.len() > LONGEST {
            return hash_of(key);
        }
    }
    name
}

fn hash_of(key: &[u8]) -> String {
    let mut name = String::from("h");
    for byte in Sha256::digest(key) {
        push_hex(&mut name, "", byte);
    }
    name
}

fn push_hex(name: &mut String, before: &str, byte: u8) {
    // Writing into a string cannot fail.
    let _ = write!(name, "{before}{byte:02x}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_legal_and_told_apart() {
        assert_eq!(name_of(b""), "k");
        assert_eq!(name_of(b"account-7"), "kaccount-7");
        assert_eq!(name_of(b"a/b \0%"), "ka%2fb%20%00%25");
        assert_eq!(name_of(b"."), "k.");
        let long = name_of(&[b'x'; 300]);
        assert_eq!(long.len(), 65);
        assert_ne!(name_of(long.as_bytes()), long);
        assert_ne!(name_of(&[b'x'; 301]), long);
    }

    proptest! {
        #[test]
        fn each_key_has_its_own_name(
            one in proptest::collection::vec(any::<u8>(), 0..300),
            other in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let (first, second) = (name_of(&one), name_of(&other));
            prop_assert_eq!(first == second, one == other);
            prop_assert!(first.len() <= LONGEST + 2);
            prop_assert!(first.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
        }
    }
}
