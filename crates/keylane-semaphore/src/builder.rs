//! Every setting of a keyed semaphore, with its default.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;

use keylane_rt::Arc;

use super::handle::KeyedSemaphore;
use super::shared::Shared;
use crate::SettingError;

/// The largest capacity: of the word that counts slots, one bit says that there is a line, and two
/// stay free so that the count cannot overflow.
const MAX_CAPACITY: usize = usize::MAX >> 3;

/// Builds a [`KeyedSemaphore`]. Every setting has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`capacity`](Self::capacity) | 65,536 | `reserve` waits, `try_reserve` fails |
/// | [`concurrency`](Self::concurrency) | 1,024 | the head of a lane waits, too |
/// | [`lane_capacity`](Self::lane_capacity) | capacity / 4 | `acquire` fails |
pub struct KeyedSemaphoreBuilder<K, S = RandomState> {
    hasher: S,
    capacity: usize,
    concurrency: usize,
    lane_capacity: Option<usize>,
    shards: Option<usize>,
    marker: PhantomData<fn(K)>,
}

impl<K> KeyedSemaphore<K> {
    /// Returns a builder, for other settings than the defaults.
    pub fn builder() -> KeyedSemaphoreBuilder<K> {
        KeyedSemaphoreBuilder {
            hasher: RandomState::new(),
            capacity: 65_536,
            concurrency: 1_024,
            lane_capacity: None,
            shards: None,
            marker: PhantomData,
        }
    }
}

impl<K, S> KeyedSemaphoreBuilder<K, S> {
    /// Sets the maximum number of reservations, waiters and permits at once, all keys together.
    pub fn capacity(mut self, waiters: usize) -> Self {
        self.capacity = waiters;
        self
    }

    /// Sets the maximum number of permits at once, all keys together. If this is not below the
    /// capacity, it limits nothing: a waiter then waits for its own key only.
    pub fn concurrency(mut self, permits: usize) -> Self {
        self.concurrency = permits;
        self
    }

    /// Sets the maximum number of waiters of one key, the permit of the key included.
    pub fn lane_capacity(mut self, waiters: usize) -> Self {
        self.lane_capacity = Some(waiters);
        self
    }

    /// Sets the number of shards of the lane map, each with its own lock; a power of two, at least
    /// 2.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets how keys are hashed. The default resists keys that were chosen to collide.
    pub fn hasher<T>(self, hasher: T) -> KeyedSemaphoreBuilder<K, T> {
        KeyedSemaphoreBuilder {
            hasher,
            capacity: self.capacity,
            concurrency: self.concurrency,
            lane_capacity: self.lane_capacity,
            shards: self.shards,
            marker: PhantomData,
        }
    }
}

impl<K, S> KeyedSemaphoreBuilder<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the semaphore. It needs no runtime.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if a limit is 0 or too large to be counted, or if the number of shards is
    /// not a power of two.
    pub fn build(self) -> Result<KeyedSemaphore<K>, SettingError> {
        for (setting, value) in [
            ("capacity", self.capacity),
            ("concurrency", self.concurrency),
            ("lane_capacity", self.lane_capacity.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(SettingError::Zero(setting));
            }
        }
        if self.capacity > MAX_CAPACITY {
            return Err(SettingError::TooLarge("capacity"));
        }
        if let Some(shards) = self.shards
            && (shards < 2 || !shards.is_power_of_two())
        {
            return Err(SettingError::Shards(shards));
        }
        let Self {
            hasher,
            capacity,
            concurrency,
            ..
        } = self;
        let lane_capacity = self.lane_capacity.unwrap_or((capacity / 4).max(1));
        let hash = Box::new(move |key: &K| hasher.hash_one(key));
        let shared = Shared::new(capacity, concurrency, lane_capacity, self.shards, hash);
        Ok(KeyedSemaphore {
            shared: Arc::new(shared),
        })
    }
}

impl<K, S> fmt::Debug for KeyedSemaphoreBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedSemaphoreBuilder")
            .field("capacity", &self.capacity)
            .field("concurrency", &self.concurrency)
            .field("lane_capacity", &self.lane_capacity)
            .finish_non_exhaustive()
    }
}
