//! The names of keys in etcd.

use keylane_connector::ConfigError;
use sha2::{Digest, Sha256};

/// Longer keys are replaced by their hash: etcd limits the size of a transaction.
const LONGEST: usize = 256;

/// What separates the namespace from the rest. No namespace contains it, so no two of them share a
/// key.
const MARK: &str = "/keylane/";

/// The names of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: Vec<u8>,
}

impl Names {
    pub(crate) fn new(namespace: &str) -> Result<Self, ConfigError> {
        if namespace.is_empty() {
            return Err(ConfigError::new("namespace", "must not be empty"));
        }
        if format!("{namespace}/").contains(MARK) {
            let why = "must not contain `/keylane/`, which separates it from the keys";
            return Err(ConfigError::new("namespace", why));
        }
        let prefix = format!("{namespace}{MARK}").into_bytes();
        Ok(Self { prefix })
    }

    /// Returns the key in etcd of the lease of a key.
    pub(crate) fn lease(&self, key: &[u8]) -> Vec<u8> {
        self.name("leases/", key)
    }

    /// Returns the key of the record of an election.
    pub(crate) fn record(&self, key: &[u8]) -> Vec<u8> {
        self.name("records/", key)
    }

    /// Returns what the keys of all candidates of an election begin with, and no others.
    pub(crate) fn candidates(&self, key: &[u8]) -> Vec<u8> {
        // The length keeps apart `a` and `a/b`: a key may have any bytes.
        let folder = format!("candidates/{}/", key.len());
        [&self.name(&folder, key)[..], b"/"].concat()
    }

    /// Returns the key that has the name of the history.
    pub(crate) fn history(&self) -> Vec<u8> {
        self.name("history", b"")
    }

    fn name(&self, folder: &str, key: &[u8]) -> Vec<u8> {
        let name = [&self.prefix, folder.as_bytes()].concat();
        match key.len() {
            // The letters keep a key apart from a hash.
            ..=LONGEST => [&name[..], b"k", key].concat(),
            _ => [&name[..], b"h", &Sha256::digest(key)].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_share_a_name() {
        let names = Names::new("accounts").unwrap();
        assert_eq!(names.lease(b"7"), b"accounts/keylane/leases/k7");
        let long = |last| names.lease(&[&[b'k'; LONGEST][..], &[last]].concat());
        assert_ne!(long(1), long(2));
        assert_ne!(long(1), names.lease(&Sha256::digest([b'k'; LONGEST])));
        assert!(long(1).len() < 64);
    }

    #[test]
    fn the_candidates_of_two_elections_do_not_meet() {
        let names = Names::new("accounts").unwrap();
        let of_a = names.candidates(b"a");
        for other in ["a/", "a/b", "", "ka", "aa", "1/ka"] {
            let other = names.candidates(other.as_bytes());
            assert!(!other.starts_with(&of_a) && !of_a.starts_with(&other));
        }
    }

    #[test]
    fn no_namespace_is_inside_another_one() {
        for wrong in ["", "a/keylane/b", "a/keylane"] {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
        for right in ["a", "a/b", "keylane", "/a"] {
            assert!(Names::new(right).is_ok(), "{right}");
        }
    }
}
