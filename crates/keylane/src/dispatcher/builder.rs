//! Every setting, with its default.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::time::Duration;

use super::handle::{Address, ClassOf, Dispatcher, Lifetime, Weigh};
use crate::adaptive::Adaptive;
use crate::batch::{BatchAnswer, BatchHandler};
use crate::discipline::{Coalesce, Delayed, Discipline, OnGap, Recorded, Sequence, Version};
use crate::engine::{
    Batch, Engine, Layout, Overflow, Places, Placing, Relaning, Router, Seat, Settings, Share,
    load, run, run_batches,
};
use crate::error::BuildError;
use crate::handler::Handler;
use crate::lanes::{CLASSES, Limits};
use crate::letter::{DeadLetterSink, Exhausted};
use crate::rate::Rate;
use crate::retry::{Retry, RetryBudget};
use crate::routing::MOST_LANES;
use crate::rt::{self, Arc, mpsc};
use crate::types::Of;

/// Each shard is a lock and a table; more than this helps nobody.
const MOST_SHARDS: usize = 1 << 16;

/// Builds a [`Dispatcher`]: the key and the handler must be given, everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`concurrency`](Self::concurrency) | 256 handlers in flight | ready lanes wait |
/// | [`adaptive_concurrency`](Self::adaptive_concurrency) | none: `concurrency` stands | ready lanes wait |
/// | [`capacity`](Self::capacity) | 65,536 messages | senders wait, `try_send` says `Full` |
/// | [`capacity_bytes`](Self::capacity_bytes) | none | the same |
/// | [`lane_capacity`](Self::lane_capacity) | 1,024 messages or a quarter of the capacity, `Wait` | only that key's senders feel it |
/// | [`stalled_capacity`](Self::stalled_capacity) | as `capacity` | what is above counts as load again |
/// | [`attempt_timeout`](Self::attempt_timeout) | none | the attempt is dropped, and failed |
/// | [`retry`](Self::retry) | none: one attempt | `on_exhausted` decides |
/// | [`retry_budget`](Self::retry_budget) | none | due retries are postponed |
/// | [`on_exhausted`](Self::on_exhausted) | `Discard` | |
/// | [`coalesce`](Self::coalesce), [`sequence`](Self::sequence) | first in, first out | |
/// | [`batch`](Self::batch) | one message at a time | |
/// | [`rate_per_key`](Self::rate_per_key) | none | the lane rests |
/// | [`expire_after`](Self::expire_after), [`expire_by`](Self::expire_by) | never | the message settles as expired |
/// | [`delayed`](Self::delayed) | `Wait` | |
/// | [`quantum`](Self::quantum) | 16 messages | the lane goes behind the other ready ones |
/// | [`rate`](Self::rate) | none | ready lanes wait, and hold no runner |
/// | [`priority`](Self::priority) | one class | more urgent lanes start first |
/// | [`stuck_after`](Self::stuck_after) | one second | a warning and a count |
/// | [`event_capacity`](Self::event_capacity) | 1,024 events for each subscriber | the oldest is lost, and counted |
pub struct Builder<K, M, E, F, S = RandomState> {
    key: F,
    hasher: S,
    weigh: Option<Weigh<M>>,
    class: Option<ClassOf<M>>,
    settings: Settings<K, M, E>,
    lane_capacity: Option<usize>,
    stalled_capacity: Option<usize>,
    shards: Option<usize>,
    concurrency: usize,
    rate_per_key: Option<Rate>,
    sequence: Option<Sequence<K, M>>,
    lifetime: Option<Lifetime<M>>,
    placing: Option<Placing<K>>,
    /// A `Share` of the handler's answer and error, which are not known yet.
    share: Option<Box<dyn Any + Send + Sync>>,
    marker: PhantomData<fn(&M) -> K>,
}

impl Dispatcher<(), ()> {
    /// Starts a dispatcher whose messages all have a key.
    ///
    /// The function is called once per message, in the task that sends it. It returns an owned key:
    /// `order.user.clone()`, not `&order.user`. For messages that may have none there is
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

    /// Starts a dispatcher whose messages may have no key.
    ///
    /// A keyless message waits for nobody and nobody waits for it: it has no order, and only the
    /// concurrency and the capacity limit it.
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
            weigh: None,
            class: None,
            settings: Settings::default(),
            lane_capacity: None,
            stalled_capacity: None,
            shards: None,
            concurrency: 256,
            rate_per_key: None,
            sequence: None,
            lifetime: None,
            placing: None,
            share: None,
            marker: PhantomData,
        }
    }
}

impl<K, M, E, F, S> Builder<K, M, E, F, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    F: Fn(&M) -> Option<K> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A name, to tell several dispatchers of one process apart: the label `dispatcher` of its
    /// metrics (feature `metrics`).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into().into());
        self
    }

    /// Most handlers in flight at once.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// Lets the limit of handlers in flight follow what the handler can do, by its latency.
    ///
    /// It takes the place of [`concurrency`](Self::concurrency), which then has no effect; where the
    /// limit starts is [`Adaptive::initial`]. A limit that shrinks drops no handler: those in flight go
    /// on, and nothing new starts until there are few enough. Where it stands is
    /// [`Stats::concurrency_limit`](crate::Stats::concurrency_limit).
    pub fn adaptive_concurrency(mut self, adaptive: Adaptive) -> Self {
        self.settings.adaptive = Some(adaptive);
        self
    }

    /// Most messages accepted and not settled. Those behind a failing head are counted apart, see
    /// [`stalled_capacity`](Self::stalled_capacity).
    pub fn capacity(mut self, messages: usize) -> Self {
        self.settings.capacity = messages;
        self
    }

    /// Most bytes accepted and not settled, as `size` tells them.
    ///
    /// `size` is called once per message, in the task that sends it.
    pub fn capacity_bytes(
        mut self,
        bytes: usize,
        size: impl Fn(&M) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.settings.capacity_bytes = Some(bytes);
        self.weigh = Some(Box::new(size));
        self
    }

    /// Most messages in lanes that back off, are halted, or are above their limit, which are not
    /// counted as load.
    ///
    /// Failing and flooded keys are no load: their messages give their room in the capacity back
    /// while they wait, up to this many. What is above it counts as load again, so memory stays
    /// bounded by `capacity + stalled_capacity` messages.
    pub fn stalled_capacity(mut self, messages: usize) -> Self {
        self.stalled_capacity = Some(messages);
        self
    }

    /// Most messages of one key, its head included, and what happens at that limit.
    ///
    /// With `Wait` and `Reject` the senders hold back once the dispatcher has *seen* the lane
    /// full; what was in the channel by then still comes in, so a lane can be deeper than its
    /// limit by what the channel held, plus one message for each sender on its way. `DropOldest`
    /// and `DeadLetter` are exact. It counts messages, whatever their size: where some are large, a
    /// blocked key can hold this many times the largest of [`capacity_bytes`](Self::capacity_bytes).
    pub fn lane_capacity(mut self, messages: usize, overflow: Overflow) -> Self {
        self.lane_capacity = Some(messages);
        self.settings.overflow = overflow;
        self
    }

    /// Drops an attempt that takes longer, as failed with
    /// [`Failure::TimedOut`](crate::Failure::TimedOut).
    ///
    /// A handler that blocks its thread cannot be dropped before it returns.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.settings.attempt_timeout = Some(limit);
        self
    }

    /// Tries failed messages again. Each attempt gets a clone of the message.
    pub fn retry(mut self, retry: Retry<E>) -> Self
    where
        M: Clone,
    {
        self.settings.retry = Some(retry);
        self.settings.keep = Some(M::clone);
        self
    }

    /// Limits the retries of all lanes together.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.settings.retry_budget = Some(budget);
        self
    }

    /// What happens after the last attempt. The message must outlive the attempt for that, so each
    /// attempt gets a clone.
    pub fn on_exhausted(mut self, exhausted: Exhausted<K, M, E>) -> Self
    where
        M: Clone,
    {
        self.settings.exhausted = exhausted;
        self.settings.keep = Some(M::clone);
        self
    }

    /// Where [`Overflow::DeadLetter`] brings what meets a full lane, if not to the sink of
    /// [`Exhausted::DeadLetter`]. Failed messages do not go there: see
    /// [`on_exhausted`](Self::on_exhausted).
    pub fn overflow_sink(mut self, sink: impl DeadLetterSink<K, M, E> + 'static) -> Self {
        self.settings.sink = Some(Arc::new(sink));
        self
    }

    /// How keys are hashed. The default, [`RandomState`], withstands hostile keys; `foldhash` is
    /// faster and only minimally resistant.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, M, E, F, T> {
        Builder {
            key: self.key,
            hasher,
            weigh: self.weigh,
            class: self.class,
            settings: self.settings,
            lane_capacity: self.lane_capacity,
            stalled_capacity: self.stalled_capacity,
            shards: self.shards,
            concurrency: self.concurrency,
            rate_per_key: self.rate_per_key,
            sequence: self.sequence,
            lifetime: self.lifetime,
            placing: self.placing,
            share: self.share,
            marker: PhantomData,
        }
    }

    /// Shards of the lane map, a power of two; four per core unless set.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Messages of one lane that a runner handles in a row while other lanes are ready.
    pub fn quantum(mut self, messages: u32) -> Self {
        self.settings.quantum = messages;
        self
    }

    /// Most attempts that all keys together start, and how many of them at once.
    ///
    /// A lane that waits for the rate is ready and no more: it holds no runner and takes nothing of the
    /// [`concurrency`](Self::concurrency). Lanes start in the order in which they became ready, and
    /// one that goes on behind its first message asks for each. Every attempt counts, a retry too,
    /// also one that is dropped at its time-out; a dead letter on its way to the sink does not.
    ///
    /// `drain` keeps the rate, and takes as long as that takes; give it a deadline
    /// ([`Ending::within`](crate::Ending::within)). What `close` and `abort` hand back does not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::{Dispatcher, Rate};
    ///
    /// // The partner allows 100 calls a second, and does not mind 20 at once.
    /// let calls = Dispatcher::builder(|call: &(u64, String)| call.0)
    ///     .rate(Rate::per_second(100).burst(20))
    ///     .spawn(|_: (u64, String)| async move { Ok::<(), std::io::Error>(()) })?;
    /// # calls.drain().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.settings.rate = Some(rate);
        self
    }

    /// Starts urgent lanes first: `class` says how urgent a message is, from 0, the most urgent, to
    /// `classes - 1`. Anything above counts as the last class. At most 8 classes.
    ///
    /// The function is called once per message, in the task that sends it.
    ///
    /// What is promised:
    ///
    /// - The order of a key never changes. A lane stands in the class of its head, whatever is
    ///   behind it: an urgent message waits for the ones before it.
    ///   What [`Lane::replace`](crate::Lane::replace) puts in a message's place keeps its class.
    /// - Of the lanes that are *ready*, the most urgent class starts first; within a class, the lane
    ///   that became ready first. What is in flight is not interrupted, and all classes share the
    ///   [`concurrency`](Self::concurrency), the [`capacity`](Self::capacity) and the
    ///   [`rate`](Self::rate).
    /// - No class starves: while one of its lanes is ready, it is passed over at most 16 times in a row,
    ///   then one of its lanes starts. A lane that goes on with its next message is one of those times.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::Dispatcher;
    ///
    /// struct Mail { user: u64, is_receipt: bool }
    ///
    /// let mails = Dispatcher::builder(|mail: &Mail| mail.user)
    ///     .priority(2, |mail| if mail.is_receipt { 0 } else { 1 })
    ///     .spawn(|_: Mail| async move { Ok::<(), std::io::Error>(()) })?;
    /// mails.send(Mail { user: 7, is_receipt: true }).await?;
    /// # mails.drain().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(
        mut self,
        classes: u8,
        class: impl Fn(&M) -> u8 + Send + Sync + 'static,
    ) -> Self {
        let last = classes.saturating_sub(1);
        self.settings.classes = classes;
        self.class = Some(Box::new(move |message| class(message).min(last)));
        self
    }

    /// After how long a handler that does not return from a poll is reported as stuck.
    ///
    /// A handler must not block its thread: it keeps one of the runtime's workers from every other
    /// key, also inside `block_in_place`, and what it has just sent or decided may wait for it. Use
    /// `spawn_blocking` and await that. On a current-thread runtime such a handler stops the report as
    /// well.
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.settings.stuck_after = limit;
        self
    }

    /// Most events that wait for one subscriber of [`events`](Dispatcher::events) to read them.
    ///
    /// At the limit the oldest is lost for the new one, and [`Events::lost`](crate::Events::lost)
    /// counts it; the engine does not wait. Memory is taken as events come.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.settings.event_capacity = events;
        self
    }

    /// Shows keys in spans and events by their `Debug`, escaped and cut, and not by their hash.
    pub fn trace_keys(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.settings.show_key = Some(<K as fmt::Debug>::fmt);
        self
    }

    /// Keeps at most one message of a key in flight and at most one waiting: see [`Coalesce`].
    pub fn coalesce(mut self, coalesce: Coalesce<M>) -> Self {
        self.settings.discipline = Discipline::Coalesce(coalesce);
        self
    }

    /// Gives coalesced messages the answer of the message that stands for them: their receipts resolve
    /// with a clone of it, or of its failure, once it is there. `O` is the handler's answer.
    ///
    /// They count as messages of their lane until then. If the message that stands for them is never
    /// handled (purged, expired, handed back), they settle as
    /// [`Merged`](crate::ReceiptError::Merged). Without [`coalesce`](Self::coalesce) it has no effect. The
    /// error must be `Clone`, which `std::io::Error` is not.
    pub fn share_answers<O>(mut self) -> Self
    where
        O: Clone + 'static,
        E: Clone,
    {
        self.share = Some(Box::new(Share {
            answer: O::clone,
            failure: E::clone,
        }));
        self
    }

    /// Handles the messages of a key in the order of their versions: see [`Sequence`].
    pub fn sequence(mut self, sequence: Sequence<K, M>) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Gives the handler up to `max` messages of one key at once, in their order. The first of them
    /// waits at most `linger` for more, from when a runner has time for it; `Duration::ZERO` takes what
    /// is there. Start it with [`spawn_batches`](Self::spawn_batches).
    ///
    /// A batch counts as one handler in flight. A retry is a batch of one: see
    /// [`BatchAnswer`], also for why batches want a [`retry`](Self::retry). A batch is never larger than
    /// [`lane_capacity`](Self::lane_capacity) lets it grow. A message without a key is a batch of its own.
    pub fn batch(mut self, max: usize, linger: Duration) -> Self {
        self.settings.batch = Some(Batch { max, linger });
        self
    }

    /// Limits how often handlers of one key start. A key above its rate rests: it holds no runner, and
    /// its messages are no load. Retries are not counted, a batch counts as one.
    ///
    /// Each key has its own burst. Messages without a key have no limit. A lane is kept until its
    /// key's rate has recovered.
    pub fn rate_per_key(mut self, rate: Rate) -> Self {
        self.rate_per_key = Some(rate);
        self
    }

    /// Messages that have not been started this long after they were accepted settle as expired. The
    /// wait that [`send_after`](crate::Dispatcher::send_after) asks for is part of that time: a message with
    /// a longer one never starts.
    ///
    /// At their time, also while their key waits for something else, as long as fewer than twice the
    /// [`capacity`](Self::capacity) of such times are in the future; above that, when their turn comes.
    /// A head that waits for its next attempt expires when that is due: it is not tried again.
    pub fn expire_after(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(Box::new(move |_| Some(lifetime)));
        self.settings.expires = !lifetime.is_zero();
        self
    }

    /// As [`expire_after`](Self::expire_after), for each message its own time; `None` never expires.
    ///
    /// `lifetime` is called once per message, in the task that sends it.
    pub fn expire_by(
        mut self,
        lifetime: impl Fn(&M) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.lifetime = Some(Box::new(lifetime));
        self.settings.expires = true;
        self
    }

    /// Whether the messages of a key wait behind one that is not to start yet, or pass it.
    pub fn delayed(mut self, delayed: Delayed) -> Self {
        self.settings.delayed = delayed;
        self
    }

    /// Starts the dispatcher on the current runtime.
    ///
    /// What the handler shares between messages it clones for each one:
    /// `move |entry: Entry| { let db = db.clone(); async move { db.post(entry).await } }`.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the setting that does not fit, or the missing runtime. A runtime without
    /// timers is found out by a caught panic: the panic hook runs, and with `panic = "abort"` the
    /// process ends.
    pub fn spawn<H, A>(mut self, handler: H) -> Result<Dispatcher<K, M, H::Output, E>, BuildError>
    where
        H: Handler<K, M, A, Error = E>,
        A: 'static,
    {
        if self.settings.batch.is_some() {
            return Err(BuildError::Batch);
        }
        let version = self.prepare()?;
        match self.settings.discipline.store() {
            Some(store) => {
                let handler = Arc::new(Recorded { handler, store });
                self.start(version, move |seat| run(seat, Arc::clone(&handler)))
            }
            None => {
                let handler = Arc::new(handler);
                self.start(version, move |seat| run(seat, Arc::clone(&handler)))
            }
        }
    }

    /// Starts the dispatcher with a handler of batches: see [`batch`](Self::batch), without which there
    /// are up to 64 messages in one, and no linger.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn spawn_batches<H, A, O>(
        mut self,
        handler: H,
    ) -> Result<Dispatcher<K, M, O, E>, BuildError>
    where
        H: BatchHandler<K, M, A>,
        H::Answer: BatchAnswer<Output = O, Error = E>,
        A: 'static,
        O: Send + 'static,
    {
        self.settings.batch.get_or_insert(Batch {
            max: 64,
            linger: Duration::ZERO,
        });
        let version = self.prepare()?;
        let handler = Arc::new(handler);
        self.start(version, move |seat| run_batches(seat, Arc::clone(&handler)))
    }

    /// Has the router find the lane of each message, so that their number may change.
    pub(crate) fn layout(
        mut self,
        layout: Arc<Layout>,
        among: fn(K, usize) -> K,
        numbered: fn(usize) -> K,
        number: fn(&K) -> usize,
    ) -> Self {
        self.placing = Some(Placing {
            layout,
            among,
            numbered,
            number,
        });
        self
    }

    /// Checks the settings, and brings them into the form that the engine reads.
    fn prepare(&mut self) -> Result<Option<Arc<Version<M>>>, BuildError> {
        self.check()?;
        let settings = &mut self.settings;
        if let Some(rate) = &self.rate_per_key {
            rate.check("rate_per_key")?;
            settings.rate_per_key = Some(rate.limiter());
        }
        let mut version = None;
        if let Some(sequence) = self.sequence.take() {
            sequence.check()?;
            let (of, sequencing) = sequence.into_parts();
            settings.discipline = Discipline::Sequence(Box::new(sequencing));
            version = Some(Arc::new(of));
        }
        settings.thinks = settings.rate_per_key.is_some()
            || settings.batch.is_some()
            || settings.expires
            || !matches!(settings.discipline, Discipline::Fifo);
        Ok(version)
    }

    fn start<O, Run>(
        mut self,
        version: Option<Arc<Version<M>>>,
        run: impl Fn(Seat<Of<K, M, O, E>>) -> Run + Send + Sync + 'static,
    ) -> Result<Dispatcher<K, M, O, E>, BuildError>
    where
        O: Send + 'static,
        Run: Future<Output = ()> + Send + 'static,
    {
        let share = match self.share.take() {
            None => None,
            Some(share) => Some(*share.downcast().map_err(|_| BuildError::AnswerType)?),
        };
        let runtime = rt::runtime().ok_or(BuildError::NoRuntime)?;
        rt::check_timers()?;

        let settings = &mut self.settings;
        // Unless it is set, one key must not take more than a quarter of the room.
        settings.lane_capacity = self
            .lane_capacity
            .unwrap_or_else(|| settings.lane_capacity.min(settings.capacity / 4).max(1));
        settings.stalled_capacity = self.stalled_capacity.unwrap_or(settings.capacity);
        settings.tally = u32::try_from(settings.capacity / 64)
            .unwrap_or(u32::MAX)
            .clamp(1, 32);
        let workers = rt::workers(&runtime);
        let limits = Limits {
            concurrency: settings
                .adaptive
                .map_or(self.concurrency, |adaptive| adaptive.first()),
            pollers: workers,
            idle: 16 * workers,
        };

        let store = settings.discipline.store();
        let runners = runtime.clone();
        let spawn = Box::new(move |engine: &Arc<Engine<Of<K, M, O, E>>>| {
            engine.runners.start(|number| {
                let seat = Seat::new(Arc::clone(engine), number);
                runners.spawn(run(seat)).abort_handle()
            });
        });
        let mut engine = Engine::new(self.settings, self.shards, limits, spawn);
        engine.share = share;
        engine.probe.runtime = Some(runtime.clone());
        let hasher = Arc::new(self.hasher);
        engine.places = self.placing.map(|placing| {
            let hasher = Arc::clone(&hasher);
            Arc::new(Places::new(placing, move |lane| hasher.hash_one(lane)))
        });
        let relaning = engine.places.clone().map(Relaning::new);
        let questions = store.map(|store| {
            let (loads, questions) = mpsc::unbounded_channel();
            engine.loads = Some(loads);
            (store, questions)
        });
        let engine = Arc::new(engine);
        if let Some((store, questions)) = questions {
            runtime.spawn(load(Arc::clone(&engine), store, questions));
        }
        let (channel, ingress) = mpsc::unbounded_channel();
        runtime.spawn(Router::new(Arc::clone(&engine), ingress, relaning).run());

        let by_message = Arc::clone(&hasher);
        let key = self.key;
        let address = Address {
            locate: Box::new(move |message| {
                let key = key(message);
                let hash = key.as_ref().map_or(0, |key| by_message.hash_one(key));
                (key, hash)
            }),
            hash: Box::new(move |key| hasher.hash_one(key)),
            weigh: self.weigh,
            asks: version.is_some() || self.lifetime.is_some() || self.class.is_some(),
            version,
            lifetime: self.lifetime,
            class: self.class,
        };
        Ok(Dispatcher {
            engine,
            channel,
            address: Arc::new(address),
        })
    }

    fn check(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        let at_least_one = [
            ("concurrency", self.concurrency),
            ("capacity", settings.capacity),
            ("capacity_bytes", settings.capacity_bytes.unwrap_or(1)),
            ("lane_capacity", self.lane_capacity.unwrap_or(1)),
            ("quantum", settings.quantum as usize),
            ("priority", usize::from(settings.classes)),
            ("event_capacity", settings.event_capacity),
            (
                "stuck_after",
                settings.stuck_after.as_nanos().min(1) as usize,
            ),
            (
                "attempt_timeout",
                settings
                    .attempt_timeout
                    .map_or(1, |t| t.as_nanos().min(1) as usize),
            ),
        ];
        if let Some((name, _)) = at_least_one.into_iter().find(|(_, value)| *value == 0) {
            return Err(BuildError::Zero(name));
        }
        if settings.batch.is_some_and(|batch| batch.max == 0) {
            return Err(BuildError::Zero("batch"));
        }
        if self.share.is_some() && !matches!(settings.discipline, Discipline::Coalesce(_)) {
            return Err(BuildError::Needs("share_answers", "coalesce"));
        }
        if self.lifetime.is_some() && !settings.expires {
            return Err(BuildError::Zero("expire_after"));
        }
        let coalesces = matches!(settings.discipline, Discipline::Coalesce(_));
        let exclusive = [
            ("coalesce", coalesces, "sequence", self.sequence.is_some()),
            ("coalesce", coalesces, "batch", settings.batch.is_some()),
            // What comes too early, or too late, would be a gap.
            (
                "sequence",
                self.sequence.is_some(),
                "batch",
                settings.batch.is_some(),
            ),
            (
                "sequence",
                self.sequence.is_some(),
                "expire_after",
                settings.expires,
            ),
        ];
        if let Some((one, _, other, _)) = exclusive.into_iter().find(|(_, a, _, b)| *a && *b) {
            return Err(BuildError::Conflict(one, other));
        }
        settings
            .adaptive
            .map_or(Ok(()), |adaptive| adaptive.check())?;
        let most = rt::Semaphore::MAX_PERMITS;
        // Room of stalled messages is given back early, so both together must be countable.
        let countable = [
            ("capacity", Some(settings.capacity)),
            ("capacity_bytes", settings.capacity_bytes),
            ("stalled_capacity", self.stalled_capacity),
            ("lane_capacity", self.lane_capacity),
        ];
        for (name, value) in countable {
            if value.is_some_and(|value| value > most / 2) {
                return Err(BuildError::TooLarge(name));
            }
        }
        if usize::from(settings.classes) > CLASSES {
            return Err(BuildError::TooLarge("priority"));
        }
        if let Some(rate) = &settings.rate {
            rate.check("rate")?;
        }
        let lanes = self.placing.as_ref().map(|placing| placing.layout.lanes());
        if lanes.is_some_and(|lanes| lanes > MOST_LANES) {
            return Err(BuildError::TooLarge("hash_lanes"));
        }
        if self.shards.is_some_and(|shards| shards > MOST_SHARDS) {
            return Err(BuildError::TooLarge("shards"));
        }
        if let Some(shards) = self.shards.filter(|n| !n.is_power_of_two() || *n < 2) {
            return Err(BuildError::Shards(shards));
        }
        let has_sink =
            settings.sink.is_some() || matches!(settings.exhausted, Exhausted::DeadLetter(_));
        let on_gap = self.sequence.as_ref().map(Sequence::on_gap);
        if (settings.overflow == Overflow::DeadLetter || on_gap == Some(OnGap::DeadLetter))
            && !has_sink
        {
            return Err(BuildError::NoDeadLetterSink);
        }
        Ok(())
    }
}

impl<K, M, E, F, S> fmt::Debug for Builder<K, M, E, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("concurrency", &self.concurrency)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
