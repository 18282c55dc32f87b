#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! The producer's side: a spool takes messages at the speed of memory, and delivers them to a sink
//! in batches, in the order of each key, even if the sink is down for minutes.
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
//! Start with [`Spool`]; [`SpoolBuilder`] has every setting. Implement [`SpoolSink`] for your
//! target; an `Inbox` of `keylane-inbox` is a sink, and stores every message once.
//!
//! # Guarantees
//!
//! - **No accepted message is lost**: it is delivered, dead-lettered or in the report. [`Persist`]
//!   says what a crash loses; under [`Persist::Each`] nothing.
//! - **The order of each key**: messages of a key are written in the order in which they were
//!   accepted, also after failures, partial writes, refusals and restarts.
//! - **Bounded memory and disk**: [`SpoolBuilder::memory`] and [`SpoolBuilder::disk`] count every
//!   message. [`AtLimit`] decides what happens at the limit; only one of its policies drops
//!   messages.
//! - **A refused message delays only its key**, even while the dead letters fail. The messages
//!   behind it are in memory and count towards the limits, which end this.
//! - **Stable ids**: a message has the same [`MessageId`] each time it is written, and no other
//!   message has it, not even after a backup of the directory was restored.
//! - **The loss of the directory is detected**: the file may be removed, moved, replaced or
//!   overwritten while the spool is open. A push under [`Persist::Each`] is answered only when its
//!   file is in its place. Accepted messages are delivered as before, or are in the report, which
//!   gives the reason ([`SpoolReport::displaced`]).
//!
//! # Limitations
//!
//! - **A message may be written twice.** Within a process: if the sink fails without saying which
//!   messages it has written, panics, or does not answer in time. After a crash: messages that were
//!   at the sink, and delivered messages whose removal from the disk was not confirmed
//!   ([`Stats::unconfirmed`]): those delivered in the last 20 ms and one commit, or since the disk
//!   fails. No others. Their ids show the repeat.
//! - Messages that are only on the disk when the spool ends are lost with a removed directory.
//!   After a backup is restored, messages that were delivered since it was made are delivered
//!   again.
//! - [`SpoolBuilder::timeout`] cannot stop a sink that blocks its thread.
//! - An older message is not delivered before others if their keys differ.
//!
//! # Monitoring
//!
//! [`Spool::stats`] shows how much waits, and since when and why the sink or the disk fails. With
//! `tracing`, target `keylane_spool`: `WARN` when the sink or the dead letters begin to fail,
//! `INFO` when they work again, `DEBUG` for each failure between, `ERROR` when the disk fails.

// # How it works
//
// `core` decides, as a pure machine under one lock; `Shared` is the lock, and wakes the tasks that
// a decision concerns. The driver, a task, sends what the core decides. The writer, a thread, is
// the only one that touches the journal: it takes all available work, commits it with one fsync,
// and tells the core. So pushes that arrive during a commit share the next one. Only
// `Persist::Each` makes delivery wait for the disk: under the other policies a message goes on as
// soon as memory is free for it.
//
// Only the driver reads the clock, because it belongs to the spool's runtime: a push may come from
// a plain thread, or from a runtime whose time is paused.
//
//     push ──► Core (pure, one lock) ──► driver (a task) ──► batches ──► sink, such as an inbox
//                  ▲    │                       └──────────► letters ──► dead letters, one by one
//                  │    ▼
//              writer (a thread): all appends and removals that there are, one sync, `spool.redb`
//
// **What goes into a batch?**
// The oldest messages whose keys are free (`core/planner.rs`).
//
// **Where is a refused message?**
// Its key leaves the line with it, so it holds up no other key. That is the same whether it waits
// for a decision or for dead letters that fail (`core/{halted,letters}.rs`).
//
// **What waits for the disk?**
// A push under `Each`. Under another policy delivery never does (`Core::admit_arrived`).
//
// **May a message be written twice?**
// Yes: if the sink's answer was lost, or the commit of the removal. Its id is the same (`id.rs`).
//
// **How does an inbox store it once?**
// The spool's id is the id by which the inbox finds duplicates (`spool.rs` in `keylane-inbox`).
//
// **May an id come twice?**
// No. Each opening draws a part of the id, so a backup that is restored gives other ids than the
// directory that it was made of (`id.rs`).
//
// **What if the file is not in its place?**
// No push is answered that the next opening would not find. An accepted message is delivered, or is
// in the report (`journal/store.rs`, `writer.rs`).
//
// # Left as it is, and why
//
// - The line has no queue per key. With several batches in flight, a plan looks at the oldest
//   messages only, four times the count of a batch. If all of them belong to keys in flight, the
//   next batch waits for one to land. So one hot key can cost the others the parallel batches,
//   never the turn. A queue per key costs every push a look-up in a table, under the lock.
// - The messages behind a refused one stay in memory. Otherwise messages of a key would have to be
//   read from the disk apart from the others. At the limit pushes wait: `Stats::letters_waiting`
//   and `Stats::halted_keys` say why.
// - To set keys aside, and to let one go, looks at every message in memory, under the lock: once
//   for all refused messages at the front of the line. It is for messages that are refused now and
//   then.
// - A spool does not find out whether the disk or the sink is faster. Once memory is full it stores
//   every message, even if the sink would soon have taken it: an outage needs that.

mod handle;
pub use handle::Spool;

mod builder;
pub use builder::SpoolBuilder;

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

mod metrics;
pub use metrics::published_metrics;

mod error;
pub use error::{FlushError, OpenError, PushError};

// The code that applies the decisions.
mod driver;
mod flight;
mod shared;
mod writer;

// The decisions.
mod backoff;
mod core;
mod size;

// The data on the disk.
mod journal;
pub use journal::{DiskError, DiskErrorKind};

pub use keylane_disk::Displacement;

/// For implementing [`SpoolSink`] and [`DeadLetters`], without another dependency.
pub use async_trait::async_trait;
