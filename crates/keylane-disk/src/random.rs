//! Numbers that need not be more than spread. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// Random bits.
pub fn bits() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now())
}

/// From 0 to 1.
pub fn dice() -> f64 {
    bits() as f64 / u64::MAX as f64
}
