//! How much a contender may use.

/// Handlers in flight at once, for every contender that has such a limit.
pub const CONCURRENCY: usize = 1_024;

/// Messages waiting at once, likewise.
pub const CAPACITY: usize = 65_536;

/// Messages waiting for one key, where a key has a queue of its own.
pub const LANE: usize = 1_024;

/// What a contender may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handlers in flight at once.
    pub concurrency: usize,
    /// Messages waiting, over all keys.
    pub capacity: usize,
    /// Messages waiting for one key, where each key has a queue of its own.
    pub lane: usize,
    /// Keys are `0..keys`; for contenders that must know them beforehand.
    pub keys: u64,
}

impl Limits {
    /// The limits of nearly every measurement.
    pub fn usual(keys: u64) -> Self {
        Self {
            concurrency: CONCURRENCY,
            capacity: CAPACITY,
            lane: LANE,
            keys,
        }
    }
}
