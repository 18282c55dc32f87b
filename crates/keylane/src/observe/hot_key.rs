//! What a query for hot keys returns.

use std::time::Duration;

/// What makes a key hot.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HotBy {
    /// How many messages it has.
    Depth,
    /// How long its oldest message has waited.
    Age,
    /// How long its handlers have waited, in the last minutes.
    Busy,
}

/// One key, as it was a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey<K> {
    /// The key.
    pub key: K,
    /// Messages that are accepted and not settled, the head included.
    pub depth: usize,
    /// How long its oldest message has waited since it was accepted. While the head is with its
    /// handler, only the time it has spent there is known; a message behind it may be older.
    pub age: Duration,
    /// How long its handlers have been waiting, measured by samples. Time that is a minute old
    /// counts half, time that is two minutes old a quarter, and so on. At least as long as the
    /// handler that waits now has waited.
    pub busy: Duration,
    /// How much of `busy` may be the time of other keys. 0 while there are few keys.
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
