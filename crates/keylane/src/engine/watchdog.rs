//! The watchdog: it looks for handlers that block, samples handlers that wait, and publishes
//! metrics.
//!
//! It ticks four times in each `stuck_after`, at multiples of that quarter since the dispatcher was
//! started. The first activity spawns it, and it ends after a tick in which nothing happened. So an
//! inactive dispatcher has no task, no timer and no wake-up, and its published figures are final.
//!
//! A handler that blocks its thread can stop all timers of the runtime, also the one of the
//! watchdog: see [`Nudge`]. If handlers block all threads, the task does not run at all. Then the
//! thread that would wake it looks in its place.
//!
//! The ticks are multiples of a quarter, whatever spawned the task. So a handler that runs alone
//! and for less than a tick is sampled in proportion to its duration.

use std::pin::pin;
// Not through the seam `rt`: the model checker has no time, and so no watchdog.
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylane_rt::clock::{self, Instant};
use keylane_rt::{self as rt, Arc, Nudge};

use super::sources::SourceSlot;
use super::{Engine, Stage};
use crate::observe::message_line::{MessageLine, What};
use crate::observe::{Lateness, StuckPoll, StuckPolls};
use crate::types::Spec;

/// What the task and the thread outside the runtime have seen.
#[derive(Default)]
struct Seen {
    polls: StuckPolls,
    lateness: Lateness,
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until the dispatcher is inactive, or has ended.
async fn watchdog<T: Spec>(engine: Arc<Engine<T>>, seen: Arc<Mutex<Seen>>, nudge: Nudge) {
    let tick = tick_of(&engine);
    let now = clock::now();
    let since_tick = engine.since_tick(now, tick);
    let last = engine
        .clocks
        .stamp(now)
        .saturating_sub(since_tick.as_nanos() as u64);
    engine.probe.hot_keys.resume_sampling(last);
    let mut next = pin!(tokio::time::sleep(tick.saturating_sub(since_tick)));
    loop {
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => return,
            () = &mut next => {}
            // Its thread looks at the timers when this task pauses again.
            () = nudge.nudged() => continue,
        }
        next.set(tokio::time::sleep(tick));
        let quiet = engine.probe.watchdog.tick();
        let stuck = {
            let mut seen = lock(&seen);
            seen.lateness.ticked();
            look_at_polls(&engine, &mut seen.polls)
        };
        for stuck in stuck {
            report(&engine, &stuck, false);
        }
        engine.full_for(clock::now());
        let now = engine.clocks.stamp(clock::now());
        engine.probe.hot_keys.sample(now);
        engine.probe.facade.publish(|| engine.stats());
        // A router that yields comes back when its worker has nothing else to do. If that worker is
        // blocked by a handler, this gets the router back on another one.
        engine.shutdown.wake_router();
        if quiet && engine.watchdog_rests() {
            // No runner is active.
            engine.probe.progress.set_blocked(None);
            return;
        }
    }
}

/// The time from one tick to the next.
fn tick_of<T: Spec>(engine: &Engine<T>) -> Duration {
    (engine.settings.stuck_after / 4).max(Duration::from_millis(1))
}

/// Looks for handlers that block all threads of the runtime, so that the task does not tick. Runs
/// on a thread outside the runtime.
fn look_from_outside<T: Spec>(engine: &Engine<T>, seen: &Mutex<Seen>) {
    let stuck = {
        let mut seen = lock(seen);
        if !seen.lateness.is_late() {
            return;
        }
        look_at_polls(engine, &mut seen.polls)
    };
    for stuck in stuck {
        report(engine, &stuck, true);
    }
}

/// Returns the polls that block their threads, each once. The health of the engine knows all.
fn look_at_polls<T: Spec>(engine: &Engine<T>, polls: &mut StuckPolls) -> Vec<StuckPoll> {
    let stuck = polls.look(engine.id(), clock::now(), engine.settings.stuck_after);
    engine.probe.progress.set_blocked(polls.blocked());
    stuck
}

/// `is_alone`: the runtime has run nothing else meanwhile, and so the driver of the source neither.
/// It says which message that was when it runs again.
fn report<T: Spec>(engine: &Engine<T>, stuck: &StuckPoll, is_alone: bool) {
    let (hash, elapsed) = (stuck.hash, stuck.lasted);
    engine.probe.counters.stuck.add(1);
    let key = || engine.table.key_of(hash);
    engine.probe.notify_stuck(key, elapsed);
    let line = MessageLine {
        key: engine.table.shown_by_hash(hash),
        what: What::Blocks { elapsed, is_alone },
    };
    let at = SourceSlot::unpack(stuck.message);
    let (sources, is_there) = (&engine.decisions.sources, || stuck.still_lasts());
    match is_alone {
        true => sources.log_now_and_later(at, line, What::HasBlocked, is_there),
        false => sources.log_at_once(at, line, is_there),
    }
}

impl<T: Spec> Engine<T> {
    /// Something happens: the watchdog is to run. Costs a relaxed load, but for the first call
    /// after a tick.
    ///
    /// Runners are recruited through here, so none runs unwatched. Everything else that changes
    /// what metrics show comes through here too: the router, and the decisions of an operator.
    #[inline]
    pub(crate) fn wake_watchdog(self: &Arc<Self>) {
        if !self.probe.watchdog.is_awake() {
            self.start_watchdog();
        }
    }

    #[cold]
    fn start_watchdog(self: &Arc<Self>) {
        if self.shutdown.stage() < Stage::Ended && self.probe.watchdog.wake() {
            let (seen, engine) = (Arc::default(), Arc::clone(self));
            let seen_outside = Arc::clone(&seen);
            let look = move || look_from_outside(&engine, &seen_outside);
            // Not by the task: it may never run.
            let nudge = Nudge::every(&self.probe.runtime, tick_of(self), look);
            let watchdog = watchdog(Arc::clone(self), seen, nudge);
            rt::spawn_watchdog(&self.probe.runtime, watchdog);
        }
    }

    /// Ends the watchdog if no runner is active. False: it goes on.
    ///
    /// A recruiter counts the runner under the lock of the ready queue, and then looks at the state
    /// of the watchdog. Here the state changes first, and then the runners are counted under that
    /// lock. Whichever comes second there sees what the other did.
    fn watchdog_rests(&self) -> bool {
        let watchdog = &self.probe.watchdog;
        if self.ready.active() > 0 || !watchdog.rest() {
            return false;
        }
        self.ready.active() == 0 || !watchdog.resume()
    }

    /// How long ago the last tick was, with ticks at multiples of `tick` since the start.
    fn since_tick(&self, now: Instant, tick: Duration) -> Duration {
        let since_start = now.saturating_duration_since(self.clocks.epoch);
        Duration::from_nanos((since_start.as_nanos() % tick.as_nanos()) as u64)
    }

    /// Identifies the engine by its address. No mark of a poll outlives its engine.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
