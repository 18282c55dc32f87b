//! The driver: it moves messages between the channel, the lanes and the handlers.
//!
//! ```text
//!  senders ──► ingress ──► router ──► lanes ──► ready queue ──► runner ──► settle
//!                            ▲                                                │
//!                            └─────────────── due timers, nudges ◄────────────┘
//! ```
//!
//! - [`Engine`] is what all of them share.
//! - `router` is the dispatcher task: the only one that reads the channel and the timers.
//! - `run` is what runs a message: the tasks that poll handlers, and what is in flight.
//! - `verdict` is what happens to a message after an attempt: settled, tried again, given up on.
//! - `settle` is the one outcome of a message, and the only place where it is given.
//! - Lanes that think: a message comes in by `arrive`, `think` is asked what to run, `rest` rouses what
//!   rests, `loader` asks the store of versions.
//! - `apart` counts what is no load, `decide` is the operator, `sweep` hands back.
//! - `shutdown` knows how far the end has come.
//!
//! # Who may touch what
//!
//! 1. A message is owned by exactly one of: the channel, a lane, the ready queue, a timer, a
//!    runner. It moves; it is never shared.
//! 2. Only the router lets messages into lanes, and besides it only `pause` creates one; whoever finishes
//!    a head moves its lane on or removes it.
//! 3. Locks are innermost: under a shard's lock only the spare chunks and the timers are locked,
//!    under any other lock nothing is. No waker of a user is woken under a lock.

mod message;
pub(crate) use message::{Accepted, Obligation, Reply};

mod settings;
pub use settings::Overflow;
pub(crate) use settings::Settings;

mod intake;
pub(crate) use intake::{Router, StoreRequest, load};

mod apply;

mod next;

mod room;
pub(crate) use room::{Gate, Room};

mod clocks;
use clocks::Clocks;

mod keyless;

mod run;
pub(crate) use run::{Batches, RunnerSlot, RunningTasks, Single, Work, run};

mod outcome;
pub(crate) use outcome::{Share, Tally};

mod admin;
mod inspect;

mod reshard;
pub(crate) use reshard::{Layout, MOST_LANES, Places, Placing, Resharding};

mod end;
pub(crate) use end::Stage;
pub use end::{HandedBack, Report};

mod probe;
use probe::Probe;

mod events;
pub use events::{Event, Events};

mod hottest;
mod notify;
mod watchdog;

use std::fmt;
use std::time::Duration;

use crate::adaptive::Meter;
use crate::clock::{self, Instant};
use crate::handler::Details;
use crate::lanes::{self, LaneMap, Limits, Ready, Recruit, Rules};
use crate::observe::Stats;
use crate::observe::trace::Shown;
use crate::rate::RateMemory;
use crate::rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::rt::{self, Arc, Handle, Mutex, OwnLine, mpsc};
use crate::types::{Spec, Types};
use crate::unwind::shielded;
use end::Shutdown;
use message::{Held, Parked, Queued};

type Lanes<T> = LaneMap<<T as Types>::Key, Parked<T>, Held<T>, Gate>;

pub(crate) type Lane<T> = lanes::Lane<Parked<T>, Held<T>, Gate>;

pub(crate) type Spawn<T> = Box<dyn Fn(&Arc<Engine<T>>) + Send + Sync>;

/// What senders, the router, runners and lane handles share.
pub(crate) struct Engine<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    /// What lanes decide by.
    rules: Rules,
    /// Whether lanes are asked for their next message.
    has_discipline: bool,
    lanes: Lanes<T>,
    ready: Ready<Queued<T>>,
    pub(crate) room: Room,
    clocks: Clocks<T>,
    /// The rates of keys without a lane, where keys have a rate.
    rates: Option<RateMemory>,
    /// Lanes that wait for a decision. A statistic.
    halted: AtomicUsize,
    /// Whether a head is to be looked at before it starts.
    slow_path: OwnLine<SlowPath>,
    /// All that is observed.
    pub(crate) probe: Probe<T::Key>,
    pub(crate) shutdown: Shutdown<T::Key, T::Message>,
    pub(crate) runners: RunningTasks,
    /// How those whose message was merged into another get its answer, where they do.
    share: Option<Share<T::Output, T::Error>>,
    /// How many lanes there are, where that is fixed.
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    /// Lanes that have drained up to their watermarks, for the router.
    drained: Mutex<Vec<T::Key>>,
    /// To the task that asks the version store.
    loads: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
    /// Starts a runner; knows the type of the handler, which nothing else here does.
    spawn: Spawn<T>,
    /// The runtime that the dispatcher was started on: its tasks, its timers, its clock.
    runtime: Handle,
}

/// What an engine is made of.
pub(crate) struct Parts<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    pub(crate) shards: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) share: Option<Share<T::Output, T::Error>>,
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    /// To the task that asks the version store.
    pub(crate) loads: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
    pub(crate) runtime: Handle,
    /// Starts a runner.
    pub(crate) spawn: Spawn<T>,
}

/// Why a head may not be allowed to start although nothing is before it.
///
/// Read relaxed for every message: it only says where to look. What a plain message is made of is
/// not looked at on its way: the parts would be moved one by one from then on, and read as a whole
/// while they are still being written.
#[derive(Debug, Default)]
struct SlowPath {
    /// Lanes that are paused.
    paused: AtomicUsize,
    /// Whether any message ever came with options.
    options: AtomicBool,
}

impl<T: Spec> Engine<T> {
    /// Whether a message may have options.
    #[inline]
    fn may_have_options(&self) -> bool {
        self.slow_path.options.load(Ordering::Relaxed)
    }

    /// A message with options is about to come.
    pub(crate) fn expect_options(&self) {
        if !self.may_have_options() {
            self.slow_path.options.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a job is to be looked at before it starts.
    #[inline]
    fn takes_slow_path(&self) -> bool {
        self.may_have_options() || self.has_paused()
    }

    /// Whether any lane is paused.
    #[inline]
    fn has_paused(&self) -> bool {
        self.slow_path.paused.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn new(parts: Parts<T>) -> Self {
        let Parts {
            settings,
            shards,
            limits,
            share,
            places,
            loads,
            runtime,
            spawn,
        } = parts;
        let clocks = Clocks::new(&runtime);
        let shutdown = Shutdown::new();
        let rules = settings.rules(share.is_some(), clocks.epoch);
        Self {
            lanes: LaneMap::new(shards),
            ready: Ready::new(limits)
                .with_rules(settings.rate.map(|rate| rate.limiter()), settings.classes),
            room: Room::new(
                settings.capacity,
                settings.capacity_bytes,
                settings.stalled_capacity,
            ),
            has_discipline: rules.has_discipline(),
            rates: rules.rate.map(|_| RateMemory::new()),
            rules,
            halted: AtomicUsize::new(0),
            slow_path: OwnLine(SlowPath::default()),
            probe: Probe::new(
                settings.name.as_deref(),
                limits.concurrency + limits.idle,
                settings.event_capacity,
                settings
                    .adaptive
                    .map(|adaptive| Meter::new(adaptive, clocks.epoch)),
                runtime.clone(),
            ),
            runners: RunningTasks::new(Details::new(shutdown.cancel.clone())),
            shutdown,
            share,
            places,
            drained: Mutex::new(Vec::new()),
            loads,
            spawn,
            runtime,
            clocks,
            settings,
        }
    }

    /// Makes a call of a user inside the dispatcher's runtime, whichever thread it comes from.
    pub(crate) fn inside<R>(&self, call: impl FnOnce() -> R) -> R {
        rt::inside(&self.runtime, call)
    }

    /// The time of the dispatcher's runtime, for calls that may come from elsewhere.
    pub(crate) fn now(&self) -> Instant {
        clock::now_in(&self.runtime)
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.probe.counters;
        Stats {
            accepted: counters.accepted.get(),
            done: counters.done.get(),
            dead_lettered: counters.dead_lettered.get(),
            discarded: counters.discarded.get(),
            coalesced: counters.coalesced.get(),
            duplicates: counters.duplicates.get(),
            expired: counters.expired.get(),
            handed_back: counters.handed_back.get(),
            failures: counters.failures.get(),
            panics: counters.panics.get(),
            timeouts: counters.timeouts.get(),
            retries: counters.retries.get(),
            postponed: counters.postponed.get(),
            letter_failures: counters.letter_failures.get(),
            overflowed: counters.overflowed.get(),
            stuck: counters.stuck.get(),
            in_flight: self.ready.active(),
            ready: self.ready.waiting(),
            lanes: self.lanes.len(),
            backing_off: self.clocks.backing_off(),
            halted: self.halted.load(Ordering::Relaxed),
            paused: self.slow_path.paused.load(Ordering::Relaxed),
            full_lanes: self.room.full_lanes(),
            stalled: self.room.stalled(),
            capacity_left: self.room.messages.available_permits(),
            concurrency_limit: self.ready.concurrency(),
        }
    }

    /// Refuses senders from now on, those that wait for room included.
    pub(crate) fn stop_intake(&self) {
        self.room.close();
        if let Some(gate) = self.rates.as_ref().and_then(RateMemory::close) {
            shielded(|| gate.close());
        }
    }

    /// Where senders wait while the rates of too many keys are remembered.
    #[inline]
    pub(crate) fn rate_gate(&self) -> Option<Gate> {
        self.rates.as_ref()?.gate()
    }

    /// The gate of this key, if its lane is full.
    #[inline]
    pub(crate) fn gate(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        match &self.places {
            None => self.gate_of(hash, key),
            Some(_) => self.gate_of_place(hash, key),
        }
    }

    /// The same where the number of lanes may change.
    #[cold]
    fn gate_of_place(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        let places = self.places.as_ref()?;
        places.gate(key).or_else(|| {
            let (lane, hash) = places.lane(key, hash);
            self.gate_of(hash, &lane)
        })
    }

    #[inline]
    fn gate_of(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        if !self.room.may_be_full(hash) {
            return None;
        }
        self.lanes
            .peek(hash, key, |lane| lane.gate().cloned())
            .flatten()
    }

    /// Whether the lane of this key waits for a version, and this is it. Its sender must not wait at the
    /// gate behind those whose messages wait for it.
    pub(crate) fn is_awaited(&self, hash: u64, key: &T::Key, version: u64) -> bool {
        let awaited = self.lanes.peek(hash, key, |lane| lane.awaits(version));
        awaited.unwrap_or(false) && !cfg!(keylane_mutant = "missing-locked-out")
    }

    /// Whether every accepted message has settled and nothing runs.
    fn is_settled(&self) -> bool {
        self.probe.counters.settled() == self.probe.counters.accepted.get()
            && self.ready.active() == 0
    }

    /// Ends a dispatcher whose own task was dropped, once all is settled.
    fn end_orphaned(&self) {
        if self.shutdown.is_orphaned() && self.is_settled() {
            // Of heads that came to wait when there was nobody left to wake them.
            self.clocks.retries.clear();
            self.clocks.wake_ups.clear();
            self.advance_to_end();
        }
    }

    /// What became of every message.
    pub(crate) fn report(&self) -> Report<T::Key, T::Message> {
        let (returned, interrupted) = self.shutdown.take_returned();
        Report {
            accepted: self.probe.counters.accepted.get(),
            done: self.probe.counters.done.get(),
            dead_lettered: self.probe.counters.dead_lettered.get(),
            discarded: self.probe.counters.discarded.get(),
            coalesced: self.probe.counters.coalesced.get(),
            duplicates: self.probe.counters.duplicates.get(),
            expired: self.probe.counters.expired.get(),
            handed_back: self.probe.counters.handed_back.get(),
            interrupted,
            returned,
            deadline_reached: self.shutdown.deadline_reached(),
        }
    }

    /// How long ago a message was parked.
    #[inline]
    pub(crate) fn waited(&self, accepted_at: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.clocks.stamp(now).saturating_sub(accepted_at))
    }

    /// A moment, as messages carry it.
    #[inline]
    fn stamp(&self, now: Instant) -> u64 {
        self.clocks.stamp(now)
    }

    /// Carries out what the ready queue decided about runners.
    #[inline]
    fn recruit(self: &Arc<Self>, recruit: Recruit) {
        if !matches!(recruit, Recruit::None) {
            self.wake_watchdog();
        }
        match recruit {
            Recruit::None => {}
            Recruit::Wake(waker) => waker.wake(),
            Recruit::Spawn => (self.spawn)(self),
        }
    }

    /// Puts one job at the back of the ready queue; hands it back when nothing starts any more.
    fn enqueue(self: &Arc<Self>, queued: impl Into<Queued<T>>) {
        match self.ready.push_one(queued.into()) {
            Ok(recruit) => self.recruit(recruit),
            Err(queued) => self.hand_back_queued(queued),
        }
    }

    /// How this key looks in spans and events.
    fn shown<'a>(&self, key: Option<&'a T::Key>, hash: u64) -> Shown<'a, T::Key> {
        Shown {
            key,
            hash,
            show: self.settings.show_key,
        }
    }
}

impl<T: Spec> Engine<T>
where
    T::Key: Eq + Clone,
{
    /// How a key looks of which only the hash is known, while it has a lane.
    fn shown_by_hash(&self, hash: u64) -> String {
        let key = self.settings.show_key.and_then(|_| self.lanes.key_of(hash));
        let shown = Shown {
            key: key.as_ref(),
            hash,
            show: self.settings.show_key,
        };
        match key {
            Some(_) => shown.to_string(),
            None => format!("#{hash:016x}"),
        }
    }
}

impl<T: Types> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("settings", &self.settings)
            .field("shutdown", &self.shutdown)
            .finish_non_exhaustive()
    }
}
