//! Whether the watchdog task of a dispatcher runs.
//!
//! The task exists only while there is something to see: it is spawned when something happens in
//! a dispatcher at rest, and ends by itself when nothing happens any more. A dispatcher at rest
//! has no such task and no timer.

// Not through the seam `rt`: the model checker has no time, and so no watchdog.
use std::sync::atomic::{AtomicU8, Ordering};

/// There is no task. Whatever happens next spawns one.
const RESTING: u8 = 0;
/// The task runs, and nothing has happened since its last tick.
const QUIET: u8 = 1;
/// The task runs, and something has happened since its last tick.
const CHANGED: u8 = 2;

/// The state of the watchdog of one dispatcher.
///
/// All orderings are relaxed: the state guards no data. The lock of the ready queue, which
/// both sides take, ensures that every runner is watched: see `Engine::watchdog_rests`.
#[derive(Debug, Default)]
pub(crate) struct Watchdog(AtomicU8);

impl Watchdog {
    /// Whether the task runs and knows already that something has happened since its last tick.
    /// This is all that an event costs, but for the first one after a tick.
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CHANGED
    }

    /// Something has happened. True: there is no task, and the caller spawns it.
    #[must_use = "the task is to be spawned"]
    pub(crate) fn wake(&self) -> bool {
        self.0.swap(CHANGED, Ordering::Relaxed) == RESTING
    }

    /// The task ticks. True: nothing has happened since its last tick.
    pub(crate) fn tick(&self) -> bool {
        self.0.swap(QUIET, Ordering::Relaxed) == QUIET
    }

    /// The task would end. False: something has happened since its last tick, and it goes on.
    pub(crate) fn rest(&self) -> bool {
        self.replace(QUIET, RESTING)
    }

    /// The task has changed its mind. False: another one was spawned meanwhile, and this one ends.
    pub(crate) fn resume(&self) -> bool {
        self.replace(RESTING, CHANGED)
    }

    fn replace(&self, current: u8, new: u8) -> bool {
        let replaced = self
            .0
            .compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed);
        replaced.is_ok()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_spawned_once_and_rests_after_a_quiet_tick() {
        let watchdog = Watchdog::default();
        assert!(!watchdog.is_awake());
        assert!(watchdog.wake(), "the first spawns it");
        assert!(!watchdog.wake() && watchdog.is_awake());
        assert!(!watchdog.tick(), "something has happened before this tick");
        assert!(watchdog.tick());
        assert!(!watchdog.wake(), "it runs");
        assert!(!watchdog.rest(), "and does not rest");
        assert!(!watchdog.tick() && watchdog.tick() && watchdog.rest());
        assert!(watchdog.wake(), "it is spawned again");
    }

    #[test]
    fn a_task_that_goes_on_after_all_leaves_that_to_a_new_one() {
        let watchdog = Watchdog::default();
        let _ = watchdog.wake();
        assert!(!watchdog.tick() && watchdog.rest() && watchdog.resume());
        assert!(!watchdog.tick() && watchdog.rest());
        assert!(watchdog.wake(), "a new one");
        assert!(!watchdog.resume());
    }
}
