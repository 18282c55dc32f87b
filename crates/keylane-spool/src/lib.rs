#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! The producer's side: takes messages at the speed of memory, and delivers them to a sink in
//! batches, in the order of each key, also when the sink is down for minutes.
//!
//! ```text
//!   push ──► memory ──► batches ──► sink: a closure, a broker, a database
//!              │  ▲                   │
//!    policy,   ▼  │ pages             ├─ failed: again, after a wait
//!    fsync    disk: spool.redb        ├─ written in part: the rest again
//!                                     └─ refused: dead letters, or the key halts;
//!                                        the other keys go on
//! ```
//!
//! Start with [`Spool`]; [`Builder`] has every setting. [`SpoolSink`] is what you bring; an
//! `Inbox` of `keylane-inbox` is one, and stores every message once.
//!
//! # What is promised
//!
//! - **Nothing accepted is lost**: it is delivered, dead-lettered or in the report. What a crash
//!   loses is what [`Persist`] names; under [`Persist::Each`] nothing.
//! - **The order of each key**: messages of a key are written in the order in which they were
//!   accepted, also after failures, partial writes, refusals and restarts.
//! - **Bounded memory and disk**: [`Builder::memory`] and [`Builder::disk`] count every message.
//!   What happens at the limit is [`AtLimit`]; only the policy that says so drops.
//! - **A refused message holds up its key only**, also while the dead letters fail. What waits
//!   behind it is in memory and counts: it is the limits that end this.
//! - **Stable ids**: a message has the same [`MessageId`] each time it is written, and no other
//!   message has it, also not after a backup of the directory was restored.
//! - **A directory that is taken away is noticed**: removed, moved, replaced or written over while
//!   the spool is open. A push under [`Persist::Each`] is answered only when its file is in its
//!   place; what was accepted is delivered as before, or is in the report, which says what has
//!   happened ([`SpoolReport::displaced`]).
//!
//! # What is not
//!
//! - **A message may be written twice.** Within a process: if the sink fails without saying what it
//!   has written, panics, or does not answer in time. After a crash: those that were at the sink,
//!   and those delivered whose removal from the disk was not confirmed ([`Stats::unconfirmed`]):
//!   what was delivered in the last 20 ms and one commit, or since the disk fails. No others. Ids
//!   tell.
//! - What only the disk has when the spool ends goes with a directory that was removed. What was
//!   delivered after a backup was made is delivered again when it is restored.
//! - A sink that blocks its thread is not helped by [`Builder::timeout`].
//! - A message that is older than others is not delivered before them if their keys differ.
//!
//! # Watching it
//!
//! [`Spool::stats`] says what waits, and since when and why the sink or the disk fails. With
//! `tracing`, target `keylane_spool`: `WARN` when the sink or the dead letters begin to fail,
//! `INFO` when they work again, `DEBUG` for each failure between, `ERROR` when the disk fails.

// # How it works
//
// `core` decides, as a pure machine under one lock; `Shared` is the lock, and wakes whom a decision
// concerns. The driver, a task, sends what the core tells it to. The writer, a thread, is the only
// one that touches the journal: it takes all work that there is, commits it with one fsync, and
// tells the core. So pushes that come while a commit runs share the next one. Only `Persist::Each`
// has delivery wait for the disk: otherwise what waits to be stored goes on as soon as memory is
// free for it.
//
// The clock is read by the driver only, which belongs to the spool's runtime: a push may come from
// a plain thread, or from a runtime whose time is paused.

mod handle;
pub use handle::Spool;

mod builder;
pub use builder::Builder;

mod policy;
pub use policy::{AtLimit, Persist};

mod message;
pub use message::{Message, Spooled};

mod headers;
pub use headers::Headers;

mod id;
pub use id::MessageId;

mod sink;
pub use sink::{SinkError, SpoolSink};

mod refused;
pub use refused::{BoxError, DeadLetters, OnRefused, Refused};

mod accepted;
pub use accepted::Accepted;

mod closing;
pub use closing::Closing;

mod report;
pub use report::SpoolReport;

mod stats;
pub use stats::{DiskFailing, Failing, HaltedKey, Stats};

mod error;
pub use error::{FlushError, OpenError, PushError};

// What applies the decisions.
mod driver;
mod flight;
mod shared;
mod writer;

// What decides.
mod backoff;
mod core;
mod size;

// What is on the disk.
mod journal;
pub use journal::{DiskError, DiskErrorKind};

pub use keylane_disk::Displacement;

/// For implementing [`SpoolSink`] and [`DeadLetters`], without another dependency.
pub use async_trait::async_trait;
