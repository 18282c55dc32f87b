//! Every setting, with its default.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, RandomState};
use std::marker::PhantomData;

use keylane_rt::Arc;

use crate::discipline::Sequence;
use crate::dispatcher::address::{ClassOf, Lifetime, Weigh};
use crate::dispatcher::handle::Dispatcher;
use crate::engine::{Layout, Placing, Settings};
use crate::rate::Rate;

/// Builds a [`Dispatcher`]: the key and the handler must be given, everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`concurrency`](Self::concurrency) | 256 handlers in flight | ready lanes wait |
/// | [`adaptive_concurrency`] | none: `concurrency` stands | ready lanes wait |
/// | [`blocking_handlers`](Self::blocking_handlers) | no: as many are polled as workers | |
/// | [`striped_intake`](Self::striped_intake) | no: one channel | |
/// | [`capacity`](Self::capacity) | 65,536 messages | senders wait, `try_send` says `Full` |
/// | [`capacity_bytes`](Self::capacity_bytes) | none | the same |
/// | [`lane_capacity`] | smaller of 1,024 and `capacity / 4`, `Wait` | senders of that key wait |
/// | [`stalled_capacity`] | as `capacity` | messages above it count as load again |
/// | [`attempt_timeout`](Self::attempt_timeout) | none | the attempt is dropped, and failed |
/// | [`retry`](Self::retry) | none: one attempt | `on_exhausted` decides |
/// | [`retry_budget`](Self::retry_budget) | none | due retries are postponed |
/// | [`on_exhausted`](Self::on_exhausted) | `Discard` | |
/// | [`coalesce`](Self::coalesce), [`sequence`](Self::sequence) | first in, first out | |
/// | [`batch`](Self::batch) | one message at a time | |
/// | [`rate_per_key`](Self::rate_per_key) | none | the lane waits |
/// | [`expire_after`], [`expire_by`] | never | the message settles as expired |
/// | [`delayed`](Self::delayed) | `Wait` | |
/// | [`leased_by`](Self::leased_by) | no leases | the lane waits |
/// | [`quantum`](Self::quantum) | 16 messages | the lane goes behind the other ready ones |
/// | [`rate`](Self::rate) | none | ready lanes wait, and hold no runner |
/// | [`priority`](Self::priority) | one class | more urgent lanes start first |
/// | [`stuck_after`](Self::stuck_after) | one second | a warning and a count |
/// | [`event_capacity`] | 1,024 events for each subscriber | the oldest is lost, and counted |
///
/// # Which one for what
///
/// Each row has an example: `cargo run --example NAME` in the repository.
///
/// | you need | you set | `NAME` |
/// | --- | --- | --- |
/// | work done once for many requests | [`coalesce`](Self::coalesce) | `coalesce` |
/// | a feed with duplicates, disorder and gaps, put right | [`sequence`] | `sequence` |
/// | several messages of a key in one handler | [`batch`], [`spawn_batches`] | `batches` |
/// | work that expires or starts later | [`expire_after`], [`send_when`] | `deadlines_and_delays` |
/// | a rate for each key, or for all | [`rate_per_key`], [`rate`] | `rates_and_priorities` |
/// | important keys first | [`priority`](Self::priority) | `rates_and_priorities` |
/// | as many handlers as a service can serve | [`adaptive_concurrency`] | `adaptive_concurrency` |
/// | a fixed number of lanes that changes under load | [`hash_lanes`] | `resize` |
///
/// Most settings go together. [`spawn`](Self::spawn) refuses those that do not, and names the two.
///
/// [`adaptive_concurrency`]: Self::adaptive_concurrency
/// [`batch`]: Self::batch
/// [`event_capacity`]: Self::event_capacity
/// [`expire_after`]: Self::expire_after
/// [`expire_by`]: Self::expire_by
/// [`hash_lanes`]: Dispatcher::hash_lanes
/// [`lane_capacity`]: Self::lane_capacity
/// [`rate`]: Self::rate
/// [`rate_per_key`]: Self::rate_per_key
/// [`send_when`]: Dispatcher::send_when
/// [`sequence`]: Self::sequence
/// [`spawn_batches`]: Self::spawn_batches
/// [`stalled_capacity`]: Self::stalled_capacity
pub struct Builder<K, M, E, F, S = RandomState> {
    pub(super) key: F,
    pub(super) hasher: S,
    pub(super) config: Config<K, M, E>,
    pub(super) marker: PhantomData<fn(&M) -> K>,
}

/// What was set, before it is checked.
pub(super) struct Config<K, M, E> {
    /// What the engine reads as it was set.
    pub(super) settings: Settings<K, M, E>,
    pub(super) concurrency: usize,
    /// Whether handlers block in place.
    pub(super) blocking: bool,
    /// Whether the intake is striped. `None`: the default.
    pub(super) striped: Option<bool>,
    pub(super) lane_capacity: Option<usize>,
    pub(super) stalled_capacity: Option<usize>,
    pub(super) shards: Option<usize>,
    pub(super) rate_per_key: Option<Rate>,
    pub(super) sequence: Option<Sequence<K, M>>,
    pub(super) weigh: Option<Weigh<M>>,
    pub(super) class: Option<ClassOf<M>>,
    pub(super) lifetime: Option<Lifetime<M>>,
    /// How keys find their lanes, where the number of lanes is fixed.
    pub(super) placing: Option<Placing<K>>,
    /// A `Share` of the handler's answer and error, whose types are not known yet.
    pub(super) share: Option<Box<dyn Any + Send + Sync>>,
}

impl<K, M, E> Default for Config<K, M, E> {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            concurrency: 256,
            blocking: false,
            striped: None,
            lane_capacity: None,
            stalled_capacity: None,
            shards: None,
            rate_per_key: None,
            sequence: None,
            weigh: None,
            class: None,
            lifetime: None,
            placing: None,
            share: None,
        }
    }
}

impl Dispatcher<(), ()> {
    /// Returns a builder of a dispatcher whose messages all have a key.
    ///
    /// The function is called once per message, in the task that sends it. It returns an owned key:
    /// `order.user.clone()`, not `&order.user`. For messages that may have no key use
    /// [`key_by_opt`](Self::key_by_opt).
    pub fn builder<K, M, E>(
        key: impl Fn(&M) -> K + Send + Sync + 'static,
    ) -> Builder<K, M, E, impl Fn(&M) -> Option<K> + Send + Sync + 'static>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
        E: fmt::Debug + Send + Sync + 'static,
    {
        Builder::new(move |message: &M| Some(key(message)))
    }

    /// Returns a builder of a dispatcher whose messages may have no key.
    ///
    /// A keyless message waits for no other message, and no other message waits for it: it has no
    /// order, and only the concurrency and the capacity limit it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::Dispatcher;
    ///
    /// struct Event { device: Option<String> }
    ///
    /// let events = Dispatcher::key_by_opt(|event: &Event| event.device.clone())
    ///     .spawn(|_: Event| async move { Ok::<(), std::io::Error>(()) })?;
    /// events.send(Event { device: None }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_by_opt<K, M, E, F>(key: F) -> Builder<K, M, E, F>
    where
        F: Fn(&M) -> Option<K> + Send + Sync + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
        E: fmt::Debug + Send + Sync + 'static,
    {
        Builder::new(key)
    }
}

impl<K, M, E, F> Builder<K, M, E, F> {
    fn new(key: F) -> Self {
        Self {
            key,
            hasher: RandomState::new(),
            config: Config::default(),
            marker: PhantomData,
        }
    }
}

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Sets a name that distinguishes the dispatchers of one process: the label `dispatcher` of the
    /// metrics (feature `metrics`).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.settings.name = Some(name.into().into());
        self
    }

    /// Sets how keys are hashed. The default, [`RandomState`], withstands hostile keys; `foldhash`
    /// is faster and only minimally resistant.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, M, E, F, T> {
        Builder {
            key: self.key,
            hasher,
            config: self.config,
            marker: self.marker,
        }
    }

    /// Sets the number of shards of the lane map, a power of two. The default is four per core.
    pub fn shards(mut self, shards: usize) -> Self {
        self.config.shards = Some(shards);
        self
    }

    /// Has the router find the lane of each message, so that the number of lanes may change.
    pub(crate) fn layout(
        mut self,
        layout: Arc<Layout>,
        among: fn(K, usize) -> K,
        numbered: fn(usize) -> K,
        number: fn(&K) -> usize,
    ) -> Self {
        self.config.placing = Some(Placing {
            layout,
            among,
            numbered,
            number,
        });
        self
    }
}

impl<K, M, E, F, S> fmt::Debug for Builder<K, M, E, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.config.settings)
            .field("concurrency", &self.config.concurrency)
            .field("shards", &self.config.shards)
            .finish_non_exhaustive()
    }
}
