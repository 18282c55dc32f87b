//! The result of a query for hot keys.

use std::time::Duration;

/// The measure of how hot a key is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HotBy {
    /// The number of its messages.
    Depth,
    /// The time that its oldest message has waited.
    Age,
    /// The time that its handlers have waited, in the last minutes.
    Busy,
}

/// One key, as it was a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey<K> {
    /// The key.
    pub key: K,
    /// The number of messages that are accepted and not settled, the head included.
    pub depth: usize,
    /// The time that its oldest message has waited since it was accepted. While the head is with
    /// its handler, only the time there is known; a message behind it may be older.
    pub age: Duration,
    /// The time that its handlers have waited, measured by samples. Time that is a minute old
    /// counts half, time that is two minutes old a quarter, and so on. It is at least the time that
    /// the current handler has waited.
    pub busy: Duration,
    /// The part of `busy` that may be the time of other keys. 0 while there are few keys.
    pub busy_error: Duration,
}

impl<K> HotKey<K> {
    /// The sort key of a query, greatest first.
    pub(crate) fn rank(&self, by: HotBy) -> (Duration, usize, Duration) {
        match by {
            HotBy::Depth => (Duration::ZERO, self.depth, self.age),
            HotBy::Age => (self.age, self.depth, self.busy),
            HotBy::Busy => (self.busy, self.depth, self.age),
        }
    }
}
