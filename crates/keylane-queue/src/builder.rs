//! Every setting of a queue, with its default.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::time::Duration;

use keylane_rt::clock::RuntimeClock;
use keylane_rt::{self as rt, Arc};

use super::driver::drive;
use super::handle::Queue;
use super::lanes::Lanes;
use super::shared::Shared;
use super::timing::MAX_TIME;
use crate::SpawnError;

/// Each shard is a lock and a table; more than this helps no program.
const MOST_SHARDS: usize = 1 << 16;

/// Builds a [`Queue`]: the key must be given, everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`capacity`](Self::capacity) | 65,536 messages | `enqueue` waits, `try_enqueue` says `Full` |
/// | [`lane_capacity`](Self::lane_capacity) | as `capacity` | both say `LaneFull` |
/// | [`lease_time`](Self::lease_time) | 30 seconds | the lease expires |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_queue::Queue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), keylane_queue::SpawnError> {
/// let mails = Queue::builder(|mail: &(u64, String)| mail.0)
///     .capacity(10_000)
///     .lane_capacity(100)
///     .lease_time(Duration::from_secs(60))
///     .spawn()?;
/// assert_eq!(mails.capacity(), 10_000);
/// # Ok(())
/// # }
/// ```
pub struct QueueBuilder<K, M, F, S = RandomState> {
    key: F,
    hasher: S,
    capacity: usize,
    lane_capacity: Option<usize>,
    shards: Option<usize>,
    lease_time: Duration,
    marker: PhantomData<fn(&M) -> K>,
}

impl Queue<(), ()> {
    /// Returns a builder of a queue. The function returns the key of a message, owned:
    /// `order.user.clone()`, not `&order.user`. It is called once per message, by `enqueue`.
    pub fn builder<K, M, F>(key: F) -> QueueBuilder<K, M, F>
    where
        F: Fn(&M) -> K + Send + Sync + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
    {
        QueueBuilder {
            key,
            hasher: RandomState::new(),
            capacity: 65_536,
            lane_capacity: None,
            shards: None,
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
    /// Sets the maximum number of messages accepted and not settled: parked, ready, leased and
    /// delayed.
    pub fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages;
        self
    }

    /// Sets the maximum number of messages of one key, the leased one included. Without it a single
    /// key can take the whole [`capacity`](Self::capacity), and then the messages of all other keys
    /// wait for room.
    pub fn lane_capacity(mut self, messages: usize) -> Self {
        self.lane_capacity = Some(messages);
        self
    }

    /// Sets how long a worker may keep a message without [`extend`](super::Lease::extend): up to a
    /// year.
    pub fn lease_time(mut self, time: Duration) -> Self {
        self.lease_time = time;
        self
    }

    /// Sets the number of shards of the lane map, each with its own lock: a power of two, at least
    /// 2. The default is four per core.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets how keys are hashed. The default, [`RandomState`], withstands hostile keys.
    pub fn hasher<T>(self, hasher: T) -> QueueBuilder<K, M, F, T> {
        QueueBuilder {
            key: self.key,
            hasher,
            capacity: self.capacity,
            lane_capacity: self.lane_capacity,
            shards: self.shards,
            lease_time: self.lease_time,
            marker: PhantomData,
        }
    }

    /// Builds the queue, and spawns the task that ends expired leases on the current runtime.
    ///
    /// That task needs a running runtime: while a runtime of one thread is not inside `block_on`,
    /// `dequeue` does not learn that a lease has expired ([`try_dequeue`](Queue::try_dequeue)
    /// does). When the runtime is dropped, the queue closes and no call waits any more; messages in
    /// the queue can still be leased without waiting.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] names the setting that does not fit, or says that there is no runtime, or one
    /// without timers. Missing timers are detected by catching a panic of Tokio, as in
    /// `QueueBuilder::spawn` of a dispatcher.
    pub fn spawn(self) -> Result<Queue<K, M>, SpawnError> {
        self.check()?;
        let runtime = rt::runtime().ok_or(SpawnError::NoRuntime)?;
        if !rt::has_timers() {
            return Err(SpawnError::NoTimers);
        }
        let Self { key, hasher, .. } = self;
        let locate = Box::new(move |message: &M| {
            let key = key(message);
            let hash = hasher.hash_one(&key);
            (key, hash)
        });
        let lanes = Lanes::new(self.shards, self.lane_capacity.unwrap_or(self.capacity));
        let clock = RuntimeClock::new(&runtime);
        let shared = Shared::new(locate, lanes, clock, self.capacity, self.lease_time);
        let shared = Arc::new(shared);
        runtime.spawn(drive(Arc::downgrade(&shared)));
        Ok(Queue { shared })
    }

    fn check(&self) -> Result<(), SpawnError> {
        for (setting, is_zero) in [
            ("capacity", self.capacity == 0),
            ("lane_capacity", self.lane_capacity == Some(0)),
            ("lease_time", self.lease_time.is_zero()),
        ] {
            if is_zero {
                return Err(SpawnError::Zero(setting));
            }
        }
        for (setting, is_too_large) in [
            ("capacity", self.capacity > rt::Semaphore::MAX_PERMITS),
            ("lease_time", self.lease_time > MAX_TIME),
            ("shards", self.shards.is_some_and(|n| n > MOST_SHARDS)),
        ] {
            if is_too_large {
                return Err(SpawnError::TooLarge(setting));
            }
        }
        match self.shards.filter(|n| !n.is_power_of_two() || *n < 2) {
            Some(shards) => Err(SpawnError::Shards(shards)),
            None => Ok(()),
        }
    }
}

impl<K, M, F, S> fmt::Debug for QueueBuilder<K, M, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("capacity", &self.capacity)
            .field("lane_capacity", &self.lane_capacity)
            .field("shards", &self.shards)
            .field("lease_time", &self.lease_time)
            .finish_non_exhaustive()
    }
}
