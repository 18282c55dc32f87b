//! Every setting of a queue, with its default.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::time::Duration;

use super::driver::drive;
use super::handle::Queue;
use super::shared::Shared;
use super::time::LONGEST;
use crate::error::BuildError;
use crate::rt::{self, Arc};

/// Builds a [`Queue`]: the key must be given, everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`limit`](Self::limit) | 65,536 messages | `enqueue` waits, `try_enqueue` says `Full` |
/// | [`lease_time`](Self::lease_time) | 30 seconds | the lease runs out |
pub struct QueueBuilder<K, M, F, S = RandomState> {
    key: F,
    hasher: S,
    limit: usize,
    lease_time: Duration,
    marker: PhantomData<fn(&M) -> K>,
}

impl<K, M, F> QueueBuilder<K, M, F> {
    pub(super) fn new(key: F) -> Self {
        Self {
            key,
            hasher: RandomState::new(),
            limit: 65_536,
            lease_time: Duration::from_secs(30),
            marker: PhantomData,
        }
    }
}

impl<K, M, F, S> QueueBuilder<K, M, F, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    F: Fn(&M) -> K + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Most messages accepted and not settled: parked, leased, and waiting to be tried again.
    pub fn limit(mut self, messages: usize) -> Self {
        self.limit = messages;
        self
    }

    /// How long a worker may keep a message without [`extend`](super::Lease::extend); up to a year.
    pub fn lease_time(mut self, time: Duration) -> Self {
        self.lease_time = time;
        self
    }

    /// How keys are hashed. The default withstands hostile keys.
    pub fn hasher<T>(self, hasher: T) -> QueueBuilder<K, M, F, T> {
        QueueBuilder {
            key: self.key,
            hasher,
            limit: self.limit,
            lease_time: self.lease_time,
            marker: PhantomData,
        }
    }

    /// Makes the queue, and starts the task that keeps its time on the current runtime.
    ///
    /// When that runtime ends the queue closes and nobody waits any more; what is in it can still be
    /// had, without waiting.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the setting that does not fit, or the missing runtime. A runtime without
    /// timers is found out by a caught panic, as by [`Builder::spawn`](crate::Builder::spawn).
    pub fn spawn(self) -> Result<Queue<K, M>, BuildError> {
        self.check()?;
        let runtime = rt::runtime().ok_or(BuildError::NoRuntime)?;
        rt::check_timers()?;
        let Self { key, hasher, .. } = self;
        let locate = Box::new(move |message: &M| {
            let key = key(message);
            let hash = hasher.hash_one(&key);
            (key, hash)
        });
        let shared = Arc::new(Shared::new(locate, self.limit, self.lease_time));
        let driver = runtime.spawn(drive(Arc::downgrade(&shared)));
        shared.set_driver(driver.abort_handle());
        Ok(Queue { shared })
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.limit == 0 {
            return Err(BuildError::Zero("limit"));
        }
        if self.lease_time.is_zero() {
            return Err(BuildError::Zero("lease_time"));
        }
        if self.limit > rt::Semaphore::MAX_PERMITS {
            return Err(BuildError::TooLarge("limit"));
        }
        if self.lease_time > LONGEST {
            return Err(BuildError::TooLarge("lease_time"));
        }
        Ok(())
    }
}

impl<K, M, F, S> fmt::Debug for QueueBuilder<K, M, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("limit", &self.limit)
            .field("lease_time", &self.lease_time)
            .finish_non_exhaustive()
    }
}
