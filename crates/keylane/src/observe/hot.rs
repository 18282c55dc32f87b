//! What a query for hot keys shows.

use std::time::Duration;

/// What makes a key hot.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
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
pub struct Hot<K> {
    /// The key.
    pub key: K,
    /// Messages that are accepted and not settled, the head included.
    pub depth: usize,
    /// How long its oldest message has waited since it was accepted. Of a head that is with its
    /// handler only the time there is known; what waits behind it may be older.
    pub age: Duration,
    /// How long its handlers have been waiting, found by samples: what was over a minute ago counts
    /// half, a minute before that a quarter, and so on. At least as long as the handler that waits now.
    pub busy: Duration,
    /// How much of `busy` may be the time of other keys. 0 while there are few keys.
    pub busy_error: Duration,
}

impl<K> Hot<K> {
    /// What it is sorted by.
    pub(crate) fn rank(&self, by: By) -> (Duration, usize, Duration) {
        match by {
            By::Depth => (Duration::ZERO, self.depth, self.age),
            By::Age => (self.age, self.depth, self.busy),
            By::Busy => (self.busy, self.depth, self.age),
        }
    }
}
