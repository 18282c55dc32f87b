#![doc = include_str!("../README.md")]
//!
//! # The words
//!
//! | word | meaning |
//! | --- | --- |
//! | message | what you send; opaque to the engine |
//! | key | what orders messages |
//! | lane | the accepted and unsettled messages of one key; it exists only while there are any |
//! | parked | accepted, waiting in its lane |
//! | ready | a lane whose head may start |
//! | in flight | the head's handler has started and has not finished |
//! | attempt | one run of the handler for one message, counted from 1 |
//! | settle | the single final outcome of an accepted message |
//! | receipt | a future for the sender: the handler's answer, or the reason why there is none |
//! | dead letter | a message that was given up on, with its key, its attempts and its last error |
//! | permit | the right to run the work of a key, from a `KeyedSemaphore` of `keylane-semaphore` |
//! | runner | the task in which handlers run |
//! | concurrency | the maximum number of handlers in flight at once |
//! | capacity | the maximum number of messages accepted and not settled |
//! | discipline | what a lane does with a new arrival: first in, first out; coalesce; sequence |
//! | coalesced | settled because another message of its key stands for it |
//! | version | a message's place among those of its key, where they are sequenced |
//! | gap | versions that are missing while later ones wait |
//! | batch | several messages of one key in one handler |
//! | expired | settled because it was too old to start |
//! | drain | accept no more messages, and finish the accepted ones |
//! | lease | the right to a key among processes, for a time; its *token* grows with each holder |
//! | hand back | return a message without an outcome, with the number of its attempts |
//!
//! # Watching it
//!
//! [`Dispatcher::stats`] is a snapshot of counters and gauges, and [`Dispatcher::inspect`] returns
//! why one key waits. [`Dispatcher::events`] is a bounded stream of events: dead letters, discarded
//! messages, halted and full lanes, gaps, handlers that block. [`Dispatcher::hottest`] finds the
//! keys with the most messages, the oldest ones, or the busiest handlers.
//!
//! With `tracing`, target `keylane`: each attempt runs in a span `keylane.message` (level `INFO`)
//! with `key`, `attempt` and `wait_us`. Events have the level `WARN` for an attempt that failed or
//! lost its lease, a message that was given up on and a handler that blocks its thread. They have
//! the level `ERROR` for a lane that is halted, a dead-letter sink that refuses, leases that cannot
//! be acquired, a drop that panics and a source that fails for ten seconds, and again at growing
//! intervals; its first failure is a warning. Keys appear as their hash, or as text with
//! [`Builder::trace_keys`]. An event about a message of a source has `source`, `position` and, if
//! the message has one, `id`. The position is missing while the driver of the source is more than
//! 1,024 events behind. An event about a handler that blocks all threads of the runtime has no
//! position, and another one with it follows when the driver runs again. Messages that are dropped
//! at the limit of their lane, or because they expired, are one warning in ten seconds, and the
//! next one says how many there were. A subscriber that panics aborts the dispatcher:
//! [`Report::panicked`] and the intake's `last_error` say so.
//!
//! [`Dispatcher::health`] and [`Intake::health`](consume::Intake::health) return whether they can
//! work, for the probes of a service manager, and what to do if not: [`watching::Health`].
//!
//! With the feature `metrics`, they publish their metrics through the facade of that name:
//! [`watching::published_metrics`]. Dispatchers do so four times in each [`Builder::stuck_after`]
//! while something changes, sources every 5 seconds, both at the end; at rest the last values
//! stand. Labels are `dispatcher` (if it has a [`Builder::name`]), `source`, and words such as the
//! outcome, never a key. The crate [`keylane_metrics`] has the whole list, a dashboard for Grafana
//! and alerts for Prometheus.
//!
//! The outcomes of `keylane_settled_total` are `done`, `dead_lettered`, `discarded`, `coalesced`,
//! `duplicate`, `expired` and `handed_back`; in the end their sum is `keylane_accepted_total`.

mod dispatcher;
pub use dispatcher::{
    Builder, Dispatcher, DispatcherSink, LaneControl, Permit, Receipt, Shutdown, When,
};

mod lane;

mod handler;
pub use handler::{Context, Handler};

pub mod batch;

pub mod discipline;

mod retry;
pub use retry::{Retry, RetryBudget};

mod rate;
pub use rate::Rate;

mod adaptive;
pub use adaptive::Adaptive;

mod letter;
#[doc(inline)]
pub use keylane_source::{DeadLetter, DeadLetterSink};
pub use letter::OnExhausted;

pub mod error;

#[doc(inline)]
pub use keylane_source::lease;

/// Where messages come from: what a source implements, and what it hands over. All of
/// [`keylane_source`], whose page explains it.
// A module, and not another name of the crate: the compiler would suggest
// `keylane::keylane_source::Source` for an import that is missing.
pub mod source {
    #[doc(inline)]
    pub use keylane_source::*;
}

pub mod consume;

pub mod watching;

mod health;

mod engine;
pub use engine::{HandedBack, Overflow, Report};

pub mod routing;

mod observe;

mod random;
mod types;

#[cfg(all(test, keylane_shuttle))]
mod schedules;

/// The bytes of keys and payloads, without another dependency.
pub use bytes::Bytes;

/// For implementing [`DeadLetterSink`], [`VersionStore`](source::VersionStore),
/// [`LaneLeases`](lease::LaneLeases) and [`RawLetterSink`](source::RawLetterSink), which are used
/// as trait objects, without another dependency.
pub use async_trait::async_trait;
