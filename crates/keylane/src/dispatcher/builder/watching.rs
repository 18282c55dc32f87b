//! What the dispatcher shows while it runs.

use std::fmt;
use std::time::Duration;

use super::settings::Builder;

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Sets the time after which a handler that does not return from a poll is reported as stuck.
    ///
    /// A handler must not block its thread: it keeps one of the runtime's workers from every other
    /// key, also inside `block_in_place` unless [`blocking_handlers`](Self::blocking_handlers) is
    /// set, and what it has just sent or decided may wait for it. Use `spawn_blocking` and await
    /// that.
    ///
    /// It can stop all timers and sockets of a runtime, though other workers sleep: Tokio wakes
    /// none of them to wait in the place of the blocked one. So while the dispatcher is active, a
    /// thread outside the runtime wakes one four times in each `limit`, and the runtime goes on. If
    /// handlers block all workers, or the only thread of a current-thread runtime, that thread
    /// reports them, within twice the `limit`: as an error in the log, because nothing else runs.
    ///
    /// Default: one second.
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.config.settings.stuck_after = limit;
        self
    }

    /// Sets the maximum number of events that wait for one subscriber of
    /// [`events`](crate::Dispatcher::events) to read them.
    ///
    /// At the limit the oldest event is lost for the new one, and
    /// [`Events::lost`](crate::watching::Events::lost) counts it; the engine does not wait. Memory
    /// is allocated as events come.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.config.settings.event_capacity = events;
        self
    }

    /// Shows keys in spans and events as their `Debug` text, escaped and cut, instead of their
    /// hash.
    pub fn trace_keys(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.config.settings.show_key = Some(<K as fmt::Debug>::fmt);
        self
    }
}
