//! All that is observed of one dispatcher.
//!
//! The engine calls this to record what has happened. Nothing here changes what the engine does,
//! and nothing here knows the engine: questions about a lane come as closures.

mod notify;

use keylane_rt::unwind::{caught, dropped, shielded};
use keylane_rt::{Arc, Handle, OwnLine, clock};

use super::events::{Event, Feed};
use super::settings::{Overflow, Settings};
use crate::adaptive::Meter;
use crate::observe::facade::Facade;
use crate::observe::hot_keys::HotKeys;
use crate::observe::trace::{ShowKey, Shown};
use crate::observe::{Counters, FailedAttempts, Progress, Timekeeper, Watchdog};

pub(crate) struct Probe<K> {
    pub(crate) counters: OwnLine<Counters>,
    /// The `metrics` facade.
    pub(crate) facade: Facade,
    /// What its health is decided by.
    pub(crate) progress: Progress,
    /// Measures attempts, where the concurrency is adaptive. In a box: it is large, and most
    /// dispatchers have none.
    pub(crate) meter: Option<Box<Meter>>,
    /// How long messages wait and attempts last.
    pub(crate) times: Arc<Timekeeper>,
    /// The attempts that failed last.
    pub(crate) failed: FailedAttempts,
    /// Which keys are hot.
    pub(crate) hot_keys: HotKeys,
    /// The subscribers to events.
    pub(super) feed: Feed<K>,
    pub(super) watchdog: Watchdog,
    /// Where the watchdog is spawned: the runtime that the dispatcher was started on.
    pub(super) runtime: Handle,
    show_key: Option<ShowKey<K>>,
    /// What happens to messages above the capacity of a lane.
    overflow: Overflow,
}

impl<K> Probe<K> {
    pub(super) fn new<M, E>(
        settings: &Settings<K, M, E>,
        concurrency: usize,
        meter: Option<Meter>,
        runtime: Handle,
    ) -> Self {
        Self {
            counters: OwnLine(Counters::default()),
            facade: Facade::new(settings.name.as_deref()),
            progress: Progress::default(),
            meter: meter.map(Box::new),
            times: Arc::default(),
            failed: FailedAttempts::default(),
            hot_keys: HotKeys::new(concurrency),
            feed: Feed::new(settings.event_capacity),
            watchdog: Watchdog::default(),
            runtime,
            show_key: settings.show_key,
            overflow: settings.overflow,
        }
    }

    /// The key as spans and events show it.
    pub(crate) fn shown<'a>(&self, key: Option<&'a K>, hash: u64) -> Shown<'a, K> {
        Shown {
            key,
            hash,
            show: self.show_key,
        }
    }

    /// Drops a user's value and catches a panic of its drop.
    pub(crate) fn drop_quietly<V>(&self, value: V) {
        if dropped(value) {
            self.counters.panics.add(1);
        }
    }

    /// Drops a user's future. A panic of its drop is caught.
    #[inline]
    pub(crate) fn drop_future(&self, drop: impl FnOnce()) {
        if let Err(text) = caught(drop) {
            self.counters.panics.add(1);
            tracing::error!(
                target: "keylane",
                panic = %text,
                "the future of a handler panicked when it was dropped"
            );
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
