//! Starting a dispatcher: settings and handler become an engine, its tasks and a handle.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use keylane_lanes::{BatchRules, RunnerLimits};
use keylane_rt::{self as rt, Arc, Handle};

use super::settings::{Builder, Config};
use crate::batch::{BatchAnswer, BatchHandler};
use crate::discipline::{Discipline, Recorded, Version};
use crate::dispatcher::address::Address;
use crate::dispatcher::handle::Dispatcher;
use crate::engine::{
    Batches, Engine, Invoke, Parts, Places, Runner, Share, Single, Spawn, Tally, launch, run,
    stripes_for,
};
use crate::error::BuildError;
use crate::handler::Handler;
use crate::rate::Rate;
use crate::types::{Key, Message, Of, Spec};

impl<K, M, E, F, S> Builder<K, M, E, F, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    F: Fn(&M) -> Option<K> + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Starts the dispatcher on the current runtime.
    ///
    /// The handler clones what it shares between messages for each one:
    /// `move |entry: Entry| { let db = db.clone(); async move { db.post(entry).await } }`.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the setting that does not fit, or the missing runtime. A runtime
    /// without timers is detected by a caught panic: the panic hook runs, and with
    /// `panic = "abort"` the process ends.
    pub fn spawn<H, A>(mut self, handler: H) -> Result<Dispatcher<K, M, H::Output, E>, BuildError>
    where
        H: Handler<K, M, A, Error = E>,
        A: 'static,
    {
        if self.config.settings.batch.is_some() {
            return Err(BuildError::Batch);
        }
        let version = self.config.complete()?;
        match self.config.settings.discipline.store() {
            Some(store) => {
                let invoke = Single::<_, A, _>::kept_if_set(Recorded { handler, store });
                self.start(version, invoke)
            }
            None if self.config.settings.keep.is_none() => {
                self.start(version, Single::<_, A, _>::not_kept(handler))
            }
            None => self.start(version, Single::<_, A, _>::kept_if_set(handler)),
        }
    }

    /// Starts the dispatcher with a handler of batches.
    ///
    /// See [`batch`](Self::batch). Without that setting a batch has up to 64 messages, and no
    /// linger.
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
        self.config.settings.batch.get_or_insert(BatchRules {
            max: 64,
            linger: Duration::ZERO,
        });
        let version = self.config.complete()?;
        self.start(version, Batches::<_, A>::new(handler))
    }

    /// Makes the address and the engine, and returns the first handle.
    fn start<O>(
        self,
        version: Option<Arc<Version<M>>>,
        invoke: impl Invoke<Of<K, M, O, E>>,
    ) -> Result<Dispatcher<K, M, O, E>, BuildError>
    where
        O: Send + 'static,
    {
        let Self {
            key,
            hasher,
            mut config,
            ..
        } = self;
        let share = config.take_share()?;
        let runtime = rt::runtime().ok_or(BuildError::NoRuntime)?;
        if !rt::has_timers() {
            return Err(BuildError::NoTimers);
        }

        let hasher = Arc::new(hasher);
        let places = config.placing.take().map(|placing| {
            let hasher = Arc::clone(&hasher);
            Arc::new(Places::new(placing, move |lane| hasher.hash_one(lane)))
        });
        let workers = rt::workers(&runtime);
        let (limits, stripes) = (
            config.limits(workers),
            config.stripes(workers, places.is_some()),
        );
        let address = config.address(key, hasher, version);
        let (engine, channel) = launch(Parts {
            settings: config.settings,
            shards: config.shards,
            stripes,
            limits,
            share,
            places,
            spawn: runners(runtime.clone(), invoke),
            runtime,
        });
        Ok(Dispatcher {
            engine,
            channel,
            address: Arc::new(address),
        })
    }
}

/// How the engine starts a runner, without knowing the handler.
fn runners<T: Spec + 'static>(runtime: Handle, invoke: impl Invoke<T>) -> Spawn<T> {
    let invoke = Arc::new(invoke);
    Box::new(move |engine: &Arc<Engine<T>>| {
        engine.runners.start(|number| {
            let runner = Runner::new(Arc::clone(engine), number);
            runtime
                .spawn(run(runner, Arc::clone(&invoke)))
                .abort_handle()
        });
    })
}

/// The intake where the builder does not say. Debug builds ask the environment, so that the tests
/// can run with both.
#[cfg(not(all(test, keylane_shuttle)))]
fn is_striped_by_default() -> bool {
    cfg!(debug_assertions)
        && std::env::var_os("KEYLANE_INTAKE").is_some_and(|intake| intake == "striped")
}

#[cfg(all(test, keylane_shuttle))]
thread_local! {
    /// Whether the intake is striped where the builder does not say.
    pub(crate) static STRIPED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(all(test, keylane_shuttle))]
fn is_striped_by_default() -> bool {
    STRIPED.get()
}

impl<K: Key, M: Message, E: 'static> Config<K, M, E> {
    /// Checks the settings and writes down what follows from them. Returns how to read a message's
    /// version, where lanes sequence.
    fn complete(&mut self) -> Result<Option<Arc<Version<M>>>, BuildError> {
        self.check()?;
        let settings = &mut self.settings;
        // Unless it is set, one key must not take more than a quarter of the room.
        settings.lane_capacity = self
            .lane_capacity
            .unwrap_or_else(|| settings.lane_capacity.min(settings.capacity / 4).max(1));
        settings.stalled_capacity = self.stalled_capacity.unwrap_or(settings.capacity);
        settings.tally = u32::try_from(settings.capacity / 64)
            .unwrap_or(u32::MAX)
            .clamp(1, Tally::MOST);
        settings.rate_per_key = self.rate_per_key.as_ref().map(Rate::limiter);
        let version = self.sequence.take().map(|sequence| {
            let (version, sequencing) = sequence.into_parts();
            settings.discipline = Discipline::Sequence(Box::new(sequencing));
            Arc::new(version)
        });
        Ok(version)
    }

    /// How coalesced messages get their answers, for a handler that answers with `O`.
    fn take_share<O: 'static>(&mut self) -> Result<Option<Share<O, E>>, BuildError> {
        let Some(share) = self.share.take() else {
            return Ok(None);
        };
        let share = share.downcast().map_err(|_| BuildError::AnswerType)?;
        Ok(Some(*share))
    }

    fn limits(&self, workers: usize) -> RunnerLimits {
        let adaptive = self.settings.adaptive;
        RunnerLimits {
            concurrency: adaptive.map_or(self.concurrency, |adaptive| adaptive.first()),
            pollers: if self.blocking { usize::MAX } else { workers },
            idle: 16 * workers,
        }
    }

    fn stripes(&self, workers: usize, has_places: bool) -> usize {
        let by_default = || !has_places && is_striped_by_default();
        match self.striped.unwrap_or_else(by_default) {
            true => stripes_for(workers),
            false => 0,
        }
    }

    fn address<S: BuildHasher + Send + Sync + 'static>(
        &mut self,
        key: impl Fn(&M) -> Option<K> + Send + Sync + 'static,
        hasher: Arc<S>,
        version: Option<Arc<Version<M>>>,
    ) -> Address<K, M> {
        let by_message = Arc::clone(&hasher);
        let (lifetime, class) = (self.lifetime.take(), self.class.take());
        Address {
            locate: Box::new(move |message| {
                let key = key(message);
                let hash = key.as_ref().map_or(0, |key| by_message.hash_one(key));
                (key, hash)
            }),
            hash: Box::new(move |key| hasher.hash_one(key)),
            weigh: self.weigh.take(),
            asks: version.is_some() || lifetime.is_some() || class.is_some(),
            version,
            lifetime,
            class,
        }
    }
}
