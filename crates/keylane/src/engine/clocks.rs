//! Everything that waits for time: heads in backoff, lanes that wait, messages that come later.

use std::time::Duration;

use keylane_lanes::Timers;
use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::clock::{self, Instant, RuntimeClock};
use keylane_rt::{Arc, Handle};

use super::end::ShutdownState;
use super::laneless::Laneless;
use super::later::Later;
use super::message::{RetryDue, WakeUp};
use crate::types::Types;

/// The timers of a dispatcher. Its own task drives them.
pub(crate) struct Clocks<T: Types> {
    /// Tells the time from any thread.
    pub(super) clock: RuntimeClock,
    /// Times are nanoseconds since then, where a word must do.
    pub(super) epoch: Instant,
    /// Of heads that wait for their next attempt.
    pub(super) retries: Timers<RetryDue<T::Key>>,
    /// Timers of heads that an operator took out before their time. Statistics.
    pub(super) stale: AtomicUsize,
    /// Heads whose retry is due and waits for the retry budget. Statistics, written by the router.
    pub(super) postponed: AtomicUsize,
    /// Of lanes that wait, and of messages that come later.
    pub(super) wake_ups: Timers<WakeUp<T::Key>>,
    /// Messages that come into their lanes later.
    pub(super) later: Later<T>,
    /// Messages without a lane that wait for their next attempt.
    pub(super) laneless: Laneless<T>,
    shutdown: Arc<ShutdownState<T::Key, T::Message>>,
}

impl<T: Types> Clocks<T> {
    pub(super) fn new(runtime: &Handle, shutdown: Arc<ShutdownState<T::Key, T::Message>>) -> Self {
        let epoch = clock::now();
        Self {
            clock: RuntimeClock::new(runtime),
            epoch,
            retries: Timers::new(runtime.clone(), epoch),
            stale: AtomicUsize::new(0),
            postponed: AtomicUsize::new(0),
            wake_ups: Timers::new(runtime.clone(), epoch),
            later: Later::new(),
            laneless: Laneless::new(),
            shutdown,
        }
    }

    /// A moment as nanoseconds since the epoch.
    #[inline]
    pub(super) fn stamp(&self, now: Instant) -> u64 {
        clock::nanos_since(self.epoch, now)
    }

    /// Timers that are armed.
    pub(super) fn armed(&self) -> usize {
        self.retries.len() + self.wake_ups.len()
    }

    /// Heads that wait for their next attempt.
    pub(super) fn backing_off(&self) -> usize {
        let waiting = self.retries.len() + self.postponed.load(Ordering::Relaxed);
        waiting.saturating_sub(self.stale.load(Ordering::Relaxed))
    }

    /// A timer of a head in backoff is going to find another state than it was armed for.
    pub(super) fn outdate(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a timer has gone off.
    pub(super) fn drop_outdated(&self) {
        let less = |stale: usize| stale.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        let _ = self.stale.fetch_update(relaxed, relaxed, less);
    }

    /// The time by the clock of the dispatcher's runtime. The caller may be outside of it.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When a message expires that is sent now, in nanoseconds since the epoch. `None`: never.
    pub(crate) fn expiry_after(&self, lifetime: Duration) -> Option<u64> {
        let lifetime = u64::try_from(lifetime.as_nanos()).ok()?;
        self.stamp(self.now()).checked_add(lifetime)
    }

    /// How long ago a message was accepted.
    #[inline]
    pub(crate) fn waited(&self, accepted_at: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.stamp(now).saturating_sub(accepted_at))
    }

    /// Arms a timer, in nanoseconds since the epoch, and wakes the router so that it polls the
    /// wheel.
    #[inline]
    pub(crate) fn arm_wake_up(&self, wake_up: WakeUp<T::Key>, at: u64) {
        if self.wake_ups.arm(wake_up, at) {
            self.shutdown.wake_router();
        }
    }

    /// Arms the timer of a job in backoff, and wakes the router.
    pub(crate) fn arm_retry(&self, due: RetryDue<T::Key>, at: Instant) {
        if self.retries.arm(due, self.stamp(at)) {
            self.shutdown.wake_router();
        }
    }
}
