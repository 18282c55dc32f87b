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
//! - `runner` is a task that polls handlers.
//! - `verdict` is what happens to a message after an attempt: settled, tried again, given up on.
//! - `settle` is the one outcome of a message, and the only place where it is given.
//! - `pace` brings the adaptive concurrency and its measurements together.
//! - Lanes that think: a message comes in by `arrive`, `think` is asked what to run, `rest` rouses what
//!   rests, `batch` is their second runner, `loader` asks the store of versions.
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
pub(crate) use message::{Accepted, Debt, Reply};

mod settings;
pub use settings::Overflow;
pub(crate) use settings::{Batch, Settings};

mod gate;
pub(crate) use gate::Gate;

mod router;
pub(crate) use router::Router;

mod release;

mod runner;
pub(crate) use runner::run;

mod batch;
pub(crate) use batch::run_batches;

mod seat;
pub(crate) use seat::Seat;

mod runners;
pub(crate) use runners::Runners;

mod apart;
mod arrive;
mod attempt;
mod hand;
mod rest;
mod settle;
pub(crate) use settle::Share;
mod sweep;
mod think;
mod verdict;

mod relane;
pub(crate) use layout::{Layout, Places, Placing};
pub(crate) use relane::Relaning;

mod layout;
mod loader;
pub(crate) use loader::{Load, load};

mod inspect;

mod decide;
pub(crate) use decide::Undecidable;

mod pace;

mod keyless;
use keyless::Keyless;

mod shutdown;
pub(crate) use shutdown::Stage;
pub use shutdown::{HandedBack, Report};

mod probe;
use probe::Probe;

mod events;
pub use events::{Event, Events};

mod hottest;
mod notify;
mod watchdog;

pub(crate) use crate::unwind::{Quiet, caught, dropped, shielded};

use std::fmt;
use std::time::Duration;

use crate::adaptive::Meter;
use crate::clock::{self, Instant};
use crate::lanes::{self, LaneMap, Limits, Ready, Recruit, Timers};
use crate::observe::Stats;
use crate::observe::trace::Shown;
use crate::rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::rt::{Arc, Mutex, OwnLine, Semaphore, mpsc};
use crate::types::{Spec, Types};
use message::{Due, Held, Parked, Queued, Rouse};
use rest::Later;
use shutdown::Shutdown;

type Lanes<T> = LaneMap<<T as Types>::Key, Parked<T>, Held<T>, Gate>;

pub(crate) type Lane<T> = lanes::Lane<Parked<T>, Held<T>, Gate>;

type Spawn<T> = Box<dyn Fn(&Arc<Engine<T>>) + Send + Sync>;

/// What senders, the router, runners and lane handles share.
pub(crate) struct Engine<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    lanes: Lanes<T>,
    ready: Ready<Queued<T>>,
    timers: Timers<Due<T::Key>>,
    /// Timers of heads that an operator took out before their time. Statistics.
    stale: AtomicUsize,
    /// Of lanes that rest, and of messages that are delayed.
    rests: Timers<Rouse<T::Key>>,
    /// Messages that come into their lanes later.
    later: Later<T>,
    /// Messages without a lane that wait for their next attempt.
    keyless: Keyless<T>,
    /// Room for messages that are accepted and not settled.
    pub(crate) capacity: Semaphore,
    /// The same in bytes.
    pub(crate) bytes: Option<Semaphore>,
    /// Messages behind failing heads; their room in `capacity` was given back.
    stalled: AtomicUsize,
    /// Heads whose retry is due and waits for the retry budget, in the router.
    postponed: AtomicUsize,
    halted: AtomicUsize,
    /// Whether turns are to be looked at before they start.
    cautions: OwnLine<Cautions>,
    /// Lanes at their limit. Senders read it relaxed: seeing it late only lets a few more
    /// messages into the lane.
    full_lanes: [AtomicUsize; gate::SLOTS],
    /// All that is observed.
    pub(crate) probe: Probe<T::Key>,
    pub(crate) shutdown: Shutdown<T::Key, T::Message>,
    pub(crate) runners: Runners,
    /// How those whose message was merged into another get its answer, where they do.
    pub(crate) share: Option<Share<T::Output, T::Error>>,
    /// How many lanes there are, where that is fixed.
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    /// Lanes that have drained up to their marks, for the router.
    drained: Mutex<Vec<T::Key>>,
    /// To the task that asks the version store.
    pub(crate) loads: Option<mpsc::UnboundedSender<Load<T::Key>>>,
    /// Starts a runner; knows the type of the handler, which nothing else here does.
    spawn: Spawn<T>,
    epoch: Instant,
}

/// Why a turn may not be allowed to start although it is its turn.
///
/// Read relaxed for every message: it only says where to look. What a plain message is made of is
/// not looked at on its way: the parts would be moved one by one from then on, and read as a whole
/// while they are still being written.
#[derive(Debug, Default)]
struct Cautions {
    /// Lanes that are paused.
    paused: AtomicUsize,
    /// Whether any message ever came with terms.
    terms: AtomicBool,
}

impl<T: Spec> Engine<T> {
    /// Whether a message may have terms.
    #[inline]
    fn has_terms(&self) -> bool {
        self.cautions.terms.load(Ordering::Relaxed)
    }

    /// A message with terms is about to come.
    pub(crate) fn expect_terms(&self) {
        if !self.has_terms() {
            self.cautions.terms.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a turn is to be looked at before it starts.
    #[inline]
    fn is_wary(&self) -> bool {
        self.has_terms() || self.has_paused()
    }

    pub(crate) fn new(
        settings: Settings<T::Key, T::Message, T::Error>,
        shards: Option<usize>,
        limits: Limits,
        spawn: Spawn<T>,
    ) -> Self {
        let epoch = clock::now();
        Self {
            lanes: LaneMap::new(shards),
            ready: Ready::new(limits)
                .with_rules(settings.rate.map(|rate| rate.limiter()), settings.classes),
            timers: Timers::new(),
            stale: AtomicUsize::new(0),
            rests: Timers::new(),
            later: Later::new(),
            keyless: Keyless::new(),
            capacity: Semaphore::new(settings.capacity),
            bytes: settings.capacity_bytes.map(Semaphore::new),
            stalled: AtomicUsize::new(0),
            postponed: AtomicUsize::new(0),
            halted: AtomicUsize::new(0),
            cautions: OwnLine(Cautions::default()),
            full_lanes: std::array::from_fn(|_| AtomicUsize::new(0)),
            probe: Probe::new(
                settings.name.as_deref(),
                limits.concurrency,
                settings.event_capacity,
                settings
                    .adaptive
                    .map(|adaptive| Meter::new(adaptive, epoch)),
            ),
            shutdown: Shutdown::new(),
            runners: Runners::new(),
            share: None,
            places: None,
            drained: Mutex::new(Vec::new()),
            loads: None,
            spawn,
            epoch,
            settings,
        }
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
            backing_off: (self.timers.len() + self.postponed.load(Ordering::Relaxed))
                .saturating_sub(self.stale.load(Ordering::Relaxed)),
            halted: self.halted.load(Ordering::Relaxed),
            paused: self.cautions.paused.load(Ordering::Relaxed),
            full_lanes: self
                .full_lanes
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed))
                .sum(),
            stalled: self.stalled.load(Ordering::Relaxed),
            capacity_left: self.capacity.available_permits(),
            concurrency_limit: self.ready.concurrency(),
        }
    }

    /// Refuses senders from now on, those that wait for room included.
    pub(crate) fn stop_intake(&self) {
        shielded(|| self.capacity.close());
        if let Some(bytes) = &self.bytes {
            shielded(|| bytes.close());
        }
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
            self.timers.clear();
            self.rests.clear();
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
    pub(crate) fn waited(&self, parked_at: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.stamp(now).saturating_sub(parked_at))
    }

    /// A moment, as tickets carry it.
    #[inline]
    fn stamp(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Carries out what the ready queue decided about runners.
    #[inline]
    fn recruit(self: &Arc<Self>, recruit: Recruit) {
        if !matches!(recruit, Recruit::Nobody) {
            self.wake_watchdog();
        }
        match recruit {
            Recruit::Nobody => {}
            Recruit::Wake(waker) => waker.wake(),
            Recruit::Spawn => (self.spawn)(self),
        }
    }

    /// Puts one turn at the back of the ready queue; hands it back when nothing starts any more.
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
