//! What the senders, the router, the runners and `LaneControl` share.

use std::fmt;

use keylane_lanes::{LaneMap, Ranked, Ready, Recruit, RunnerLimits};
use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::unwind::shielded;
use keylane_rt::{self as rt, Arc, Handle, Mutex, OwnLine, mpsc};

use super::clocks::Clocks;
use super::decisions::Decisions;
use super::end::{Report, ShutdownState, Stage};
use super::failures::Failures;
use super::intake::Stripes;
use super::lane::LaneEffects;
use super::leases::LaneLeaseTable;
use super::message::{Queued, StoreRequest};
use super::probe::Probe;
use super::reshard::Places;
use super::room::Room;
use super::settings::{Settings, Share};
use super::settlement::{Settlement, Tally};
use super::slow_path::{GuardedStarts, SlowPath};
use super::sources::Sources;
use super::starts::Starts;
use super::table::{LaneTable, Waits};
use super::tasks::RunningTasks;
use crate::adaptive::Meter;
use crate::handler::Details;
use crate::observe::Stats;
use crate::rate::RateMemory;
use crate::types::{Spec, Types};

pub(crate) type Spawn<T> = Box<dyn Fn(&Arc<Engine<T>>) + Send + Sync>;

/// What the senders, the router, the runners and `LaneControl` share.
pub(crate) struct Engine<T: Types> {
    pub(crate) settings: Arc<Settings<T::Key, T::Message, T::Error>>,
    /// Limits what is accepted.
    pub(crate) room: Arc<Room>,
    /// Waits for time.
    pub(crate) clocks: Arc<Clocks<T>>,
    /// Observes: counters, metrics, events, hot keys.
    pub(crate) probe: Arc<Probe<T::Key>>,
    /// How far the end has come.
    pub(crate) shutdown: Arc<ShutdownState<T::Key, T::Message>>,
    /// What is shared with the drivers of sources.
    pub(crate) sources: Arc<Sources>,
    /// Whether a job must be checked before it starts.
    pub(crate) slow_path: Arc<OwnLine<SlowPath>>,
    /// Settles messages.
    pub(super) settlement: Arc<Settlement<T>>,
    /// The lanes.
    pub(crate) table: Arc<LaneTable<T>>,
    /// Carries out what they decide.
    pub(super) decisions: Arc<Decisions<T>>,
    /// What follows from a failed attempt.
    pub(super) failures: Arc<Failures<T>>,
    /// Which job of a lane starts.
    pub(super) starts: Starts<T>,
    pub(super) ready: Ready<Queued<T>>,
    /// The striped intake, if that is used.
    pub(crate) stripes: Stripes<T>,
    pub(crate) runners: RunningTasks,
    /// Spawns a runner. Only this closure knows the type of the handler.
    pub(super) spawn: Spawn<T>,
    /// The runtime that the dispatcher was started on.
    pub(super) runtime: Handle,
}

/// The parts that an engine is built from.
pub(crate) struct Parts<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    pub(crate) shards: Option<usize>,
    /// How many stripes the intake has. 0: it is the channel.
    pub(crate) stripes: usize,
    pub(crate) limits: RunnerLimits,
    pub(crate) share: Option<Share<T::Output, T::Error>>,
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    pub(crate) runtime: Handle,
    /// Spawns a runner.
    pub(crate) spawn: Spawn<T>,
}

impl<T: Spec> Engine<T> {
    /// `store_requests` is the channel to the task that asks the version store.
    pub(super) fn new(
        parts: Parts<T>,
        store_requests: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
        leases: Option<LaneLeaseTable<T::Key>>,
    ) -> Self {
        let Parts {
            settings,
            shards,
            stripes,
            limits,
            share,
            places,
            runtime,
            spawn,
        } = parts;
        let settings = Arc::new(settings);
        let leases = leases.map(Arc::new);
        let shutdown = Arc::new(ShutdownState::new());
        let clocks = Arc::new(Clocks::new(&runtime, Arc::clone(&shutdown)));
        let rules = settings.rules(share.is_some(), clocks.epoch);
        let rejoins = rules.enters() && rules.rejoins();
        let slow_path = Arc::new(OwnLine(SlowPath::new(leases.is_some(), rejoins)));
        let room = Arc::new(Room::new(
            settings.capacity,
            settings.capacity_bytes,
            settings.stalled_capacity,
        ));
        let meter = settings.adaptive;
        let probe = Arc::new(Probe::new(
            &settings,
            limits.concurrency.saturating_add(limits.idle),
            meter.map(|adaptive| Meter::new(adaptive, clocks.epoch)),
            runtime.clone(),
        ));
        let sources = Arc::new(Sources::new(settings.discipline.merge().is_some()));
        let settlement = Arc::new(Settlement {
            room: Arc::clone(&room),
            probe: Arc::clone(&probe),
            shutdown: Arc::clone(&shutdown),
            sources: Arc::clone(&sources),
            share,
            most: settings.tally,
        });
        let table = Arc::new(LaneTable {
            lanes: LaneMap::new(shards),
            has_discipline: rules.has_discipline(),
            enters: rules.has_discipline() && rules.enters(),
            rates: rules.rate.map(|_| RateMemory::new()),
            rules,
            halted: AtomicUsize::new(0),
            waits: Waits::default(),
            drained: Mutex::new(Vec::new()),
            places,
            leases: leases.clone(),
            settings: Arc::clone(&settings),
            slow_path: Arc::clone(&slow_path),
            clocks: Arc::clone(&clocks),
            room: Arc::clone(&room),
            probe: Arc::clone(&probe),
            shutdown: Arc::clone(&shutdown),
            settlement: Arc::clone(&settlement),
        });
        let decisions = Arc::new(Decisions {
            lost_to_limits: Mutex::default(),
            expired: Mutex::default(),
            table: Arc::clone(&table),
            settlement: Arc::clone(&settlement),
            store_requests,
            settings: Arc::clone(&settings),
            clocks: Arc::clone(&clocks),
            probe: Arc::clone(&probe),
            shutdown: Arc::clone(&shutdown),
            sources: Arc::clone(&sources),
        });
        let failures = Arc::new(Failures {
            decisions: Arc::clone(&decisions),
            settlement: Arc::clone(&settlement),
            settings: Arc::clone(&settings),
            probe: Arc::clone(&probe),
        });
        let runners = RunningTasks::new(Details::new(shutdown.cancel.clone(), leases.is_some()));
        let starts = Starts {
            table: Arc::clone(&table),
            decisions: Arc::clone(&decisions),
            failures: Arc::clone(&failures),
            slow_path: Arc::clone(&slow_path),
            sources: Arc::clone(&sources),
            details: Arc::clone(&runners.details),
        };
        let ready = Ready::new(limits)
            .with_precedence(settings.rate.map(|rate| rate.limiter()), settings.classes)
            .with_expiry(table.rules.expires);
        let starts_alone = ready.is_first_come() && settings.adaptive.is_none();
        let stripes = Stripes::new(stripes, starts_alone, Arc::clone(&shutdown));
        Self {
            settings,
            room,
            clocks,
            probe,
            shutdown,
            sources,
            slow_path,
            settlement,
            table,
            decisions,
            failures,
            starts,
            ready,
            stripes,
            runners,
            spawn,
            runtime,
        }
    }

    /// How many handlers may be in flight now.
    pub(crate) fn concurrency(&self) -> usize {
        self.ready.concurrency()
    }

    /// Most messages of one lane.
    pub(crate) fn lane_capacity(&self) -> usize {
        self.table.rules.capacity
    }

    /// Spawns a task beside the runners, on the dispatcher's runtime.
    pub(crate) fn spawn_beside(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// A source counts attempts, or a revocation begins: until the value is dropped, jobs are
    /// checked before they start.
    pub(crate) fn guard_starts(&self) -> GuardedStarts {
        GuardedStarts::new(&self.slow_path)
    }

    /// Runs the user's code inside the dispatcher's runtime, whatever thread calls this.
    pub(crate) fn inside<R>(&self, call: impl FnOnce() -> R) -> R {
        rt::inside(&self.runtime, call)
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
            ready: self.ready.waiting().saturating_sub(self.stripes.entries()),
            lanes: self.table.lanes.len(),
            backing_off: self.clocks.backing_off(),
            halted: self.table.halted.load(Ordering::Relaxed),
            paused: self.slow_path.paused.load(Ordering::Relaxed),
            waiting: self.table.waits.get(),
            full_lanes: self.room.full_lanes(),
            stalled: self.room.stalled(),
            capacity_left: self.room.messages.available_permits(),
            concurrency_limit: self.ready.concurrency(),
        }
    }

    /// Refuses all senders from now on, also those that wait for room.
    pub(crate) fn stop_intake(&self) {
        self.room.close();
        if let Some(gate) = self.table.rates.as_ref().and_then(RateMemory::close) {
            shielded(|| gate.close());
        }
    }

    /// Returns the room that a tally has gathered, and counts what it has settled. For tasks that
    /// are no runner: the end of a runner looks whether it was the last one.
    pub(super) fn flush(&self, tally: &mut Tally) {
        self.settlement.flush(tally);
        self.end_orphaned();
    }

    /// Whether every accepted message has settled and no handler runs.
    pub(super) fn is_settled(&self) -> bool {
        self.probe.counters.settled() == self.probe.counters.accepted.get()
            && self.ready.active() == 0
    }

    /// Moves to the end once everything has settled, if the dispatcher task was dropped early.
    pub(super) fn end_orphaned(&self) {
        // In this order: a turn counts what it takes before it ends.
        if self.shutdown.is_orphaned() && self.stripes.are_idle() && self.is_settled() {
            // Timers of jobs that were parked after the dispatcher task was gone.
            self.clocks.retries.clear();
            self.clocks.wake_ups.clear();
            self.advance_to_end();
        }
    }

    /// The report stands, and nothing will happen any more.
    pub(super) fn advance_to_end(&self) {
        // The last figures stand before the report does. A recorder is the user's code.
        shielded(|| self.probe.facade.publish(|| self.stats()));
        if let Some(leases) = &self.table.leases {
            // Their release, and the keys' own drop.
            shielded(|| leases.end());
        }
        self.probe.end_events();
        self.shutdown.enter(Stage::Ended);
    }

    /// Builds the report: how every message was settled.
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
            panicked: self.shutdown.has_panicked(),
        }
    }

    /// Wakes or spawns the runner that the ready queue has recruited. True: there is one.
    #[inline]
    pub(super) fn recruit(self: &Arc<Self>, recruit: Recruit) -> bool {
        match recruit {
            Recruit::None => return false,
            Recruit::Full => {
                self.stripes.ask_router();
                return false;
            }
            Recruit::Wake(waker) => waker.wake(),
            Recruit::Spawn => (self.spawn)(self),
        }
        self.wake_watchdog();
        true
    }

    /// Pushes one job to the back of the ready queue. If the queue is closed, the job is handed
    /// back. True: a runner was recruited.
    pub(super) fn enqueue(self: &Arc<Self>, queued: impl Into<Queued<T>>) -> bool {
        let queued: Queued<T> = queued.into();
        let expires = self.table.rules.expires && queued.expires_at().is_some();
        match self.ready.push_one(queued) {
            Ok(recruit) => {
                let recruited = self.recruit(recruit);
                if expires {
                    // It has the alarm.
                    self.shutdown.wake_router();
                }
                recruited
            }
            Err(queued) => {
                self.table.hand_back_queued(queued);
                self.end_orphaned();
                false
            }
        }
    }

    /// Applies a decision that neither the router nor a runner has made, and enqueues what follows.
    pub(super) fn apply_and_enqueue(
        self: &Arc<Self>,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) {
        let mut letters = Vec::new();
        let out = self
            .decisions
            .apply(tally, key, hash, effects, &mut letters);
        for queued in letters.into_iter().chain(out) {
            self.enqueue(queued);
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
