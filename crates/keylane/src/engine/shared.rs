//! What the senders, the router, the runners and `LaneControl` share.

use std::fmt;
use std::time::Duration;

use keylane_lanes::{LaneMap, Ranked, Ready, Recruit, Rules, RunnerLimits};
use keylane_rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use keylane_rt::clock::Instant;
use keylane_rt::unwind::shielded;
use keylane_rt::{self as rt, Arc, Handle, Mutex, OwnLine, mpsc};

use super::clocks::Clocks;
use super::end::Report;
use super::end::ShutdownState;
use super::lane::{Gate, Lanes};
use super::leases::LaneLeaseTable;
use super::message::{Queued, StoreRequest};
use super::probe::Probe;
use super::reshard::Places;
use super::room::Room;
use super::settings::{Settings, Share};
use super::sources::Sources;
use super::tasks::RunningTasks;
use crate::adaptive::Meter;
use crate::handler::Details;
use crate::observe::Stats;
use crate::observe::trace::Shown;
use crate::rate::RateMemory;
use crate::types::{Spec, Types};

pub(crate) type Spawn<T> = Box<dyn Fn(&Arc<Engine<T>>) + Send + Sync>;

/// What the senders, the router, the runners and `LaneControl` share.
pub(crate) struct Engine<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    /// The rules that the lanes decide by.
    pub(super) rules: Rules,
    /// Whether the lanes have a discipline.
    pub(super) has_discipline: bool,
    /// Whether the first message of a lane with a discipline goes into the ready queue itself.
    pub(super) enters: bool,
    /// Whether its lane then decides what starts when a runner takes it.
    pub(super) rejoins: bool,
    pub(super) lanes: Lanes<T>,
    pub(super) ready: Ready<Queued<T>>,
    pub(crate) room: Room,
    pub(super) clocks: Clocks<T>,
    /// The rates of keys that have no lane. `None`: keys have no rate.
    pub(super) rates: Option<RateMemory>,
    /// How many lanes wait for an operator's decision. A statistic.
    pub(super) halted: AtomicUsize,
    /// Whether a job must be checked before it starts.
    pub(super) slow_path: OwnLine<SlowPath>,
    /// The counters, metrics, events and tables of hot keys.
    pub(crate) probe: Probe<T::Key>,
    pub(crate) shutdown: ShutdownState<T::Key, T::Message>,
    /// What is shared with the drivers of sources.
    pub(crate) sources: Arc<Sources>,
    pub(crate) runners: RunningTasks,
    /// How the receipts of merged messages get the answer of the message that ran.
    pub(super) share: Option<Share<T::Output, T::Error>>,
    /// How many lanes the keys are spread over, if they are. Only a reshard changes it.
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    /// The keys of lanes that have drained up to their watermarks. Lanes add to it, the router
    /// takes from it.
    pub(super) drained: Mutex<Vec<T::Key>>,
    /// The channel to the task that asks the version store.
    pub(super) store_requests: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
    /// Which keys have their leases. `None`: lanes need none.
    pub(super) leases: Option<LaneLeaseTable<T::Key>>,
    /// Spawns a runner. Only this closure knows the type of the handler.
    pub(super) spawn: Spawn<T>,
    /// The runtime that the dispatcher was started on.
    pub(super) runtime: Handle,
}

/// The parts that an engine is built from.
pub(crate) struct Parts<T: Types> {
    pub(crate) settings: Settings<T::Key, T::Message, T::Error>,
    pub(crate) shards: Option<usize>,
    pub(crate) limits: RunnerLimits,
    pub(crate) share: Option<Share<T::Output, T::Error>>,
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    pub(crate) runtime: Handle,
    /// Spawns a runner.
    pub(crate) spawn: Spawn<T>,
}

/// Why a job may have to wait although no other job of its key is in front of it.
///
/// Every message reads these relaxed. They have no partner: they only say whether to check, and a
/// check of a paused key takes the shard's lock. Plain messages are not checked on their way,
/// because then the compiler would move them field by field.
#[derive(Debug, Default)]
pub(super) struct SlowPath {
    /// Lanes that are paused.
    pub(super) paused: AtomicUsize,
    /// Whether any message ever came that is delayed or expires.
    pub(super) untimely: AtomicBool,
    /// Sources that count attempts, and revocations that are under way. One more for ever where
    /// lanes are leased.
    pub(super) guards: AtomicUsize,
    /// Whether any source was ever consumed.
    pub(super) has_sources: AtomicBool,
}

/// While it exists, jobs are checked before they start.
pub(crate) struct GuardedStarts<T: Types>(Arc<Engine<T>>);

impl<T: Types> Drop for GuardedStarts<T> {
    fn drop(&mut self) {
        self.0.slow_path.guards.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Spec> Engine<T> {
    /// Whether any message came that is delayed or expires.
    #[inline]
    pub(super) fn may_be_untimely(&self) -> bool {
        self.slow_path.untimely.load(Ordering::Relaxed)
    }

    /// Records that a message that is delayed or expires is about to be sent.
    pub(crate) fn expect_untimely(&self) {
        if !self.may_be_untimely() {
            self.slow_path.untimely.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the lane of a job may have something else to start instead.
    #[inline]
    pub(super) fn takes_slow_path(&self) -> bool {
        self.may_be_untimely() || self.has_paused() || self.rejoins
    }

    /// Whether a source, or a lease, has a say before a job starts.
    #[inline]
    pub(super) fn guards_starts(&self) -> bool {
        self.slow_path.guards.load(Ordering::Relaxed) > 0
    }

    /// Whether any source was ever consumed.
    #[inline]
    pub(super) fn has_sources(&self) -> bool {
        self.slow_path.has_sources.load(Ordering::Relaxed)
    }

    /// The first message of a source is about to come.
    pub(crate) fn expect_sources(&self) {
        self.slow_path.has_sources.store(true, Ordering::Relaxed);
    }

    /// A source counts attempts, or a revocation begins: until the value is dropped, jobs are
    /// checked before they start.
    pub(crate) fn guard_starts(self: &Arc<Self>) -> GuardedStarts<T> {
        self.slow_path.guards.fetch_add(1, Ordering::SeqCst);
        GuardedStarts(Arc::clone(self))
    }

    /// Whether any lane is paused.
    #[inline]
    pub(super) fn has_paused(&self) -> bool {
        self.slow_path.paused.load(Ordering::Relaxed) > 0
    }

    /// `store_requests` is the channel to the task that asks the version store.
    pub(super) fn new(
        parts: Parts<T>,
        store_requests: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
        leases: Option<LaneLeaseTable<T::Key>>,
    ) -> Self {
        let Parts {
            settings,
            shards,
            limits,
            share,
            places,
            runtime,
            spawn,
        } = parts;
        let slow_path = SlowPath {
            guards: AtomicUsize::new(usize::from(leases.is_some())),
            ..SlowPath::default()
        };
        let clocks = Clocks::new(&runtime);
        let shutdown = ShutdownState::new();
        let rules = settings.rules(share.is_some(), clocks.epoch);
        Self {
            lanes: LaneMap::new(shards),
            ready: Ready::new(limits)
                .with_precedence(settings.rate.map(|rate| rate.limiter()), settings.classes)
                .with_expiry(rules.expires),
            room: Room::new(
                settings.capacity,
                settings.capacity_bytes,
                settings.stalled_capacity,
            ),
            has_discipline: rules.has_discipline(),
            enters: rules.has_discipline() && rules.enters(),
            rejoins: rules.enters() && rules.rejoins(),
            rates: rules.rate.map(|_| RateMemory::new()),
            rules,
            halted: AtomicUsize::new(0),
            slow_path: OwnLine(slow_path),
            probe: Probe::new(
                settings.name.as_deref(),
                limits.concurrency.saturating_add(limits.idle),
                settings.event_capacity,
                settings
                    .adaptive
                    .map(|adaptive| Meter::new(adaptive, clocks.epoch)),
                runtime.clone(),
            ),
            runners: RunningTasks::new(Details::new(shutdown.cancel.clone(), leases.is_some())),
            shutdown,
            sources: Arc::new(Sources::default()),
            share,
            places,
            drained: Mutex::new(Vec::new()),
            store_requests,
            leases,
            spawn,
            runtime,
            clocks,
            settings,
        }
    }

    /// How many handlers may be in flight now.
    pub(crate) fn concurrency(&self) -> usize {
        self.ready.concurrency()
    }

    /// Most messages of one lane.
    pub(crate) fn lane_capacity(&self) -> usize {
        self.rules.capacity
    }

    /// Spawns a task beside the runners, on the dispatcher's runtime.
    pub(crate) fn spawn_beside(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs the user's code inside the dispatcher's runtime, whatever thread calls this.
    pub(crate) fn inside<R>(&self, call: impl FnOnce() -> R) -> R {
        rt::inside(&self.runtime, call)
    }

    /// The time by the clock of the dispatcher's runtime. The caller may be outside of it.
    pub(crate) fn now(&self) -> Instant {
        self.clocks.clock.now()
    }

    /// When a message expires that is sent now, in nanoseconds since the epoch. `None`: never.
    pub(crate) fn expiry_after(&self, lifetime: Duration) -> Option<u64> {
        let lifetime = u64::try_from(lifetime.as_nanos()).ok()?;
        self.stamp(self.now()).checked_add(lifetime)
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

    /// Refuses all senders from now on, also those that wait for room.
    pub(crate) fn stop_intake(&self) {
        self.room.close();
        if let Some(gate) = self.rates.as_ref().and_then(RateMemory::close) {
            shielded(|| gate.close());
        }
    }

    /// The gate where senders wait while too many rates are remembered.
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

    /// The gate of a lane, where a reshard may change the number of lanes.
    #[cold]
    pub(super) fn gate_of_place(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        let places = self.places.as_ref()?;
        places.gate(key).or_else(|| {
            let (lane, hash) = places.lane(key, hash);
            self.gate_of(hash, &lane)
        })
    }

    #[inline]
    pub(super) fn gate_of(&self, hash: u64, key: &T::Key) -> Option<Gate> {
        if !self.room.may_be_full(hash) {
            return None;
        }
        self.lanes
            .peek(hash, key, |lane| lane.gate().cloned())
            .flatten()
    }

    /// Whether the lane of this key waits for this version. The sender of that version must not
    /// wait at the gate, because the senders in front of it wait for its message.
    pub(crate) fn is_awaited(&self, hash: u64, key: &T::Key, version: u64) -> bool {
        let awaited = self.lanes.peek(hash, key, |lane| lane.awaits(version));
        awaited.unwrap_or(false)
    }

    /// Whether every accepted message has settled and no handler runs.
    pub(super) fn is_settled(&self) -> bool {
        self.probe.counters.settled() == self.probe.counters.accepted.get()
            && self.ready.active() == 0
    }

    /// Moves to the end once everything has settled, if the dispatcher task was dropped early.
    pub(super) fn end_orphaned(&self) {
        if self.shutdown.is_orphaned() && self.is_settled() {
            // Timers of jobs that were parked after the dispatcher task was gone.
            self.clocks.retries.clear();
            self.clocks.wake_ups.clear();
            self.advance_to_end();
        }
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
        }
    }

    /// How long ago a message was accepted.
    #[inline]
    pub(crate) fn waited(&self, accepted_at: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.clocks.stamp(now).saturating_sub(accepted_at))
    }

    /// A moment, as nanoseconds since the epoch.
    #[inline]
    pub(super) fn stamp(&self, now: Instant) -> u64 {
        self.clocks.stamp(now)
    }

    /// Wakes or spawns the runner that the ready queue has recruited.
    #[inline]
    pub(super) fn recruit(self: &Arc<Self>, recruit: Recruit) {
        if !matches!(recruit, Recruit::None) {
            self.wake_watchdog();
        }
        match recruit {
            Recruit::None => {}
            Recruit::Wake(waker) => waker.wake(),
            Recruit::Spawn => (self.spawn)(self),
        }
    }

    /// Pushes one job to the back of the ready queue. If the queue is closed, the job is handed
    /// back.
    pub(super) fn enqueue(self: &Arc<Self>, queued: impl Into<Queued<T>>) {
        let queued: Queued<T> = queued.into();
        let expires = self.rules.expires && queued.expires_at().is_some();
        match self.ready.push_one(queued) {
            Ok(recruit) => {
                self.recruit(recruit);
                if expires {
                    // It has the alarm.
                    self.shutdown.wake_router();
                }
            }
            Err(queued) => self.hand_back_queued(queued),
        }
    }

    /// The key as spans and events show it.
    pub(super) fn shown<'a>(&self, key: Option<&'a T::Key>, hash: u64) -> Shown<'a, T::Key> {
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
    /// How to show a key by its hash, while it has a lane.
    pub(super) fn shown_by_hash(&self, hash: u64) -> String {
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
