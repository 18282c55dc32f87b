//! Every setting of a turnstile, with its default.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;

use super::handle::Turnstile;
use super::shared::Shared;
use crate::error::BuildError;
use crate::rt::Arc;

/// Most that can be counted.
const MOST: usize = usize::MAX >> 3;

/// Builds a [`Turnstile`]: everything has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`capacity`](Self::capacity) | 65,536 places | `reserve` waits, `try_enter` says `Full` |
/// | [`concurrency`](Self::concurrency) | 1,024 turns | a place waits, also at the head of its lane |
/// | [`lane_capacity`](Self::lane_capacity) | a quarter of the capacity | `enter` says `LaneFull` |
pub struct TurnstileBuilder<K, S = RandomState> {
    hasher: S,
    capacity: usize,
    concurrency: usize,
    lane_capacity: Option<usize>,
    shards: Option<usize>,
    marker: PhantomData<fn(K)>,
}

impl<K> TurnstileBuilder<K> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            capacity: 65_536,
            concurrency: 1_024,
            lane_capacity: None,
            shards: None,
            marker: PhantomData,
        }
    }
}

impl<K, S> TurnstileBuilder<K, S> {
    /// Most places at once: those that wait and those that have their turn.
    pub fn capacity(mut self, places: usize) -> Self {
        self.capacity = places;
        self
    }

    /// Most turns at once. With as many as the capacity, or more, a key waits for itself alone.
    pub fn concurrency(mut self, turns: usize) -> Self {
        self.concurrency = turns;
        self
    }

    /// Most places of one key, the one that has its turn included.
    pub fn lane_capacity(mut self, places: usize) -> Self {
        self.lane_capacity = Some(places);
        self
    }

    /// How many parts the map of lanes has, each with a lock of its own; a power of two, at least 2.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// How keys are hashed. The default withstands hostile keys.
    pub fn hasher<T>(self, hasher: T) -> TurnstileBuilder<K, T> {
        TurnstileBuilder {
            hasher,
            capacity: self.capacity,
            concurrency: self.concurrency,
            lane_capacity: self.lane_capacity,
            shards: self.shards,
            marker: PhantomData,
        }
    }
}

impl<K, S> TurnstileBuilder<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the turnstile. It needs no runtime.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if a limit is 0 or larger than can be counted, or the shards are no power of two.
    pub fn build(self) -> Result<Turnstile<K>, BuildError> {
        for (setting, value) in [
            ("capacity", self.capacity),
            ("concurrency", self.concurrency),
            ("lane_capacity", self.lane_capacity.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(BuildError::Zero(setting));
            }
        }
        if self.capacity > MOST {
            return Err(BuildError::TooLarge("capacity"));
        }
        if let Some(shards) = self.shards
            && (shards < 2 || !shards.is_power_of_two())
        {
            return Err(BuildError::Shards(shards));
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
        Ok(Turnstile {
            shared: Arc::new(shared),
        })
    }
}

impl<K, S> fmt::Debug for TurnstileBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnstileBuilder")
            .field("capacity", &self.capacity)
            .field("concurrency", &self.concurrency)
            .field("lane_capacity", &self.lane_capacity)
            .finish_non_exhaustive()
    }
}
