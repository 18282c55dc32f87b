//! Streams: a consumer group as a source, with one owner for each stream.
//!
//! ```text
//!                    ┌─ membership: members, our streams ── leases
//!                    ▼
//!  orders:0 ──► owner: take-over, lease ── reader ──► News ──► source ──► driver
//!     ▲              └──────────────────── outbox ◄── acks, attempts ┘
//!     └── XREADGROUP, XCLAIM, XACK, each script behind {orders:0}:keylane:owner:<group>
//! ```
//!
//! # Where to look
//!
//! - `builder.rs` has the settings, `source.rs` is the task of the driver, `held.rs` the streams
//!   that it owns, and `session.rs` one opening of it.
//! - `membership.rs` joins the members of the group and acquires streams; `share.rs` decides how
//!   many.
//! - `owner.rs` is the task of one stream, `reader.rs` reads it ahead, and `outbox.rs` sends the
//!   settlements to the server. `flow.rs` limits how far they are apart.
//! - `cursor.rs` decides in which order a stream is read, and `owned.rs` which entries are handed
//!   over: both are independent of a server.
//! - `lease.rs` has the calls of an owner to the server, with the scripts in `lua/`.
//!
//! # Why the order of a key holds
//!
//! 1. A stream has one owner at a time, under a lease. Its token is stored beside the stream: each
//!    call that acks, claims or counts compares it in the same step, so a former owner changes
//!    nothing.
//! 2. A new owner takes all pending entries of the group, in the order of the ids, before it reads
//!    new ones.
//! 3. `XREADGROUP` compares no token. Entries that a former owner reads with it after the take-over
//!    are pending, above all entries that the owner has handed over, and below those that it reads
//!    afterwards. Each read asks for the first pending entry above those that were handed over, and
//!    the owner takes the entries in between first.
//! 4. No call waits in `XREADGROUP`: a process that is stopped there would take entries later.
//!    `XREAD` waits instead, and takes no entry.

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

// Pure decisions, without a server.
mod cursor;
mod flow;
mod guard;
mod owned;
mod share;

// Communication with the server.
mod answer;
mod lease;
mod script;
