//! The purpose of a timer, or of a question to the version store.

use std::time::Duration;

use keylane_lanes::Due;
use keylane_rt::clock::Instant;

/// Why a timer wakes a lane, the delayed messages, or the memory of rates.
#[derive(Debug)]
pub(crate) enum WakeUp<K> {
    /// Something in a lane is due.
    Lane { key: K, hash: u64, due: Due },
    /// The first of the delayed messages comes into its lane at this moment.
    Later(Instant),
    /// Remembered rates of keys without lanes have fully recovered, and can be forgotten.
    Forget,
}

/// What the timer of a failed job is for.
#[derive(Debug)]
pub(crate) enum RetryDue<K> {
    /// The head that this lane holds.
    Lane { key: K, hash: u64, until: Instant },
    /// A message without a lane, by its number among those that wait.
    Laneless(u64),
}

impl<K> StoreRequest<K> {
    /// The first backoff after an error of the store.
    pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(100);
}

/// A key whose last version is to be loaded or recorded.
#[derive(Debug)]
pub(crate) struct StoreRequest<K> {
    pub(crate) key: K,
    pub(crate) hash: u64,
    pub(crate) record: Option<u64>,
    /// How long to wait if the store fails.
    pub(crate) wait: Duration,
}
