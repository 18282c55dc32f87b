//! All that is observed of one dispatcher.
//!
//! The engine calls this to record what has happened. Nothing here changes what the engine does,
//! and nothing here knows the engine: questions about a lane come as closures.

use keylane_rt::unwind::{caught, dropped, shielded};
use keylane_rt::{Handle, clock};

use super::events::{Event, Feed};
use crate::adaptive::Meter;
use crate::observe::facade::Facade;
use crate::observe::hot_keys::HotKeys;
use crate::observe::{Counters, Watchdog};

pub(crate) struct Probe<K> {
    pub(crate) counters: Counters,
    /// The `metrics` facade.
    pub(crate) facade: Facade,
    /// Measures attempts, where the concurrency is adaptive.
    pub(crate) meter: Option<Meter>,
    /// Which keys are hot.
    pub(crate) hot_keys: HotKeys,
    /// The subscribers to events.
    pub(super) feed: Feed<K>,
    pub(super) watchdog: Watchdog,
    /// Where the watchdog is spawned: the runtime that the dispatcher was started on.
    pub(super) runtime: Handle,
}

impl<K> Probe<K> {
    pub(super) fn new(
        name: Option<&str>,
        concurrency: usize,
        event_capacity: usize,
        meter: Option<Meter>,
        runtime: Handle,
    ) -> Self {
        Self {
            counters: Counters::default(),
            facade: Facade::new(name),
            meter,
            hot_keys: HotKeys::new(concurrency),
            feed: Feed::new(event_capacity),
            watchdog: Watchdog::default(),
            runtime,
        }
    }

    /// Notifies the subscribers of an event. Without one: a relaxed load.
    ///
    /// Never under a lock: making the event clones the user's key and formats errors.
    #[inline]
    pub(super) fn notify(&self, event: impl FnOnce(tokio::time::Instant) -> Event<K>) {
        if self.feed.has_subscribers() {
            self.notify_subscribers(event);
        }
    }

    #[cold]
    fn notify_subscribers(&self, event: impl FnOnce(tokio::time::Instant) -> Event<K>) {
        let event = caught(|| event(clock::now().into())).ok();
        let published = self.feed.publish(event);
        for waker in published.wakers {
            shielded(|| waker.wake());
        }
        for event in published.lost {
            if dropped(event) {
                self.counters.panics.add(1);
            }
        }
    }

    /// Ends the stream of events: nothing will happen any more.
    pub(super) fn end_events(&self) {
        for waker in self.feed.end() {
            shielded(|| waker.wake());
        }
    }
}
