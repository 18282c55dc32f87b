//! Numbers that no other history of a database draws again.
//!
//! A standby that was behind draws the same sequences and tokens again once it is promoted, and so
//! does a backup. So each permanent name has a random number beside the one that is drawn in order.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// Returns a random number of 62 bits that is neither 0 nor 1. It fits into the columns of both
/// databases.
pub(super) fn draw() -> u64 {
    (RandomState::new().hash_one(SystemTime::now()) >> 2).max(2)
}
