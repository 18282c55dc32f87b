//! The errors of a keyed semaphore, one small type per operation.

use keylane_rt::text_in_debug;
use thiserror::Error;

/// The reason why a semaphore could not be built. Each variant names the setting to change.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum SettingError {
    /// This setting must be at least one.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting is larger than the semaphore can count.
    #[error("`{0}` is too large")]
    TooLarge(&'static str),
    /// The number of shards must be a power of two, and at least two.
    #[error("`shards` must be a power of two and at least 2, but is {0}")]
    Shards(usize),
}

text_in_debug! { SettingError: Zero, TooLarge, Shards }

/// The semaphore is closed.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error("the semaphore is closed")]
pub struct Closed;

text_in_debug! { Closed }

/// The reason why [`acquire`](super::KeyedSemaphore::acquire) gave no permit. The key comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum AcquireError<K> {
    /// As many as `lane_capacity` of this key wait already. Other keys are not affected.
    #[error("the lane of the key is full: try again later, or raise `lane_capacity`")]
    LaneFull(K),
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed(K),
}

text_in_debug! { AcquireError<K>: LaneFull, Closed }

/// The reason why [`try_acquire`](super::KeyedSemaphore::try_acquire) gave no permit. The key comes
/// back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryAcquireError<K> {
    /// The caller would have to wait: for its key, for one of `concurrency`, or for capacity.
    #[error("no permit is available: wait with `acquire`")]
    NoPermits(K),
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed(K),
}

text_in_debug! { TryAcquireError<K>: NoPermits, Closed }

/// The reason why [`try_reserve`](super::KeyedSemaphore::try_reserve) gave no reservation.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryReserveError {
    /// The capacity is used up, or other callers wait for it already.
    #[error("the semaphore is at its capacity: wait with `reserve`, or raise `capacity`")]
    Full,
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed,
}

text_in_debug! { TryReserveError: Full, Closed }

impl<K> AcquireError<K> {
    /// Returns the key for which there is no permit.
    pub fn into_inner(self) -> K {
        match self {
            Self::LaneFull(key) | Self::Closed(key) => key,
        }
    }
}

impl<K> TryAcquireError<K> {
    /// Returns the key for which there is no permit.
    pub fn into_inner(self) -> K {
        match self {
            Self::NoPermits(key) | Self::Closed(key) => key,
        }
    }
}
