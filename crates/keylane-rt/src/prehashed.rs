//! A hasher for keys that are hashes already.

use std::hash::{BuildHasherDefault, Hasher};

/// Takes a hash as it is.
#[derive(Debug, Default)]
pub struct Prehashed(u64);

/// Makes hashers for keys that are hashes already.
pub type BuildPrehashed = BuildHasherDefault<Prehashed>;

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole hashes are written")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_not_hashed_again() {
        let mut hasher = Prehashed::default();
        hasher.write_u64(0x1234_5678_9abc_def0);
        assert_eq!(hasher.finish(), 0x1234_5678_9abc_def0);
    }
}
