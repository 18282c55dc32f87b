//! Streams: a consumer group as a source, with one owner for each stream.
//!
//! ```text
//!                    ┌─ steward: who is there, which streams are ours ── leases
//!                    ▼
//!  orders:0 ──► owner: take-over, lease ── reader ──► News ──► source ──► driver
//!     ▲              └──────────────────── teller ◄── acks, attempts ┘
//!     └── XREADGROUP, XCLAIM, XACK, each script behind {orders:0}:keylane:owner:<group>
//! ```
//!
//! # Where to look
//!
//! - `builder.rs` is what is set, `source.rs` the task of the driver, `held.rs` the streams that it
//!   owns, and `session.rs` one opening of it.
//! - `steward.rs` joins the members of the group and acquires streams; `share.rs` decides how many.
//! - `owner.rs` is the task of one stream, `reader.rs` reads it ahead, and `teller.rs` tells the
//!   server what has settled. `flow.rs` is how far they are apart.
//! - `cursor.rs` decides in which order a stream is read, and `owned.rs` what of it is handed over:
//!   both know no server.
//! - `tenure.rs` is what an owner says to the server, with the scripts in `lua/`.
//!
//! # Why the order of a key holds
//!
//! 1. A stream has one owner at a time, under a lease. Its token stands beside the stream: whatever
//!    acks, claims or counts compares it in the same step, so a former owner changes nothing.
//! 2. A new owner takes everything that is pending in the group, in the order of the ids, before it
//!    reads anything new.
//! 3. `XREADGROUP` compares nothing. What a former owner takes by it after the take-over is
//!    pending, above everything that the owner has handed over, and below what it reads afterwards.
//!    Each read asks which entry is the first one pending above what was handed over, and takes
//!    what is between first.
//! 4. Nothing waits in `XREADGROUP`: a process that is stopped there would take entries later. What
//!    waits is `XREAD`, which takes nothing.

mod builder;
pub use builder::{StreamBuilder, StreamStart, StreamTrim};

mod source;
pub use source::StreamSource;

mod held;

mod sink;
pub use sink::StreamSink;

mod position;
pub use position::StreamPosition;

mod id;
pub use id::{EntryId, NoEntryId};

mod partition;
pub use partition::partition_of;

mod origin;

mod fields;
pub use fields::StreamFields;

mod counts;
pub use counts::{StreamCounts, StreamWatch};

// The tasks.
mod membership;
mod outbox;
mod owner;
mod reader;
mod session;
mod worker;

// What is decided, without a server.
mod cursor;
mod flow;
mod guard;
mod owned;
mod share;

// What speaks with the server.
mod answer;
mod lease;
mod script;
