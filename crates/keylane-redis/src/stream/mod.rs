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
//! - `config.rs` has the settings, and `builder.rs` sets them. `source.rs` is the task of the
//!   driver, `held.rs` the streams that it owns, and `session.rs` one opening of it.
//! - `membership.rs` joins the members of the group and acquires streams.
//! - `owner.rs` is the task of one stream, and `reader.rs` reads it ahead. `settle/` sends the
//!   settlements to the server.
//! - `letters.rs` has what an operator does to dead letters, and `letter.rs` their form.
//! - `core/` decides without a server: how many streams a member has, in which order a stream is
//!   read, which entries are handed over, and how far reading and settling may be apart.
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

// # How it works
//
// `XREADGROUP` hands the entries of a key to several consumers. So order over processes needs one
// reader for each stream. A stream has an owner, under a lease of `keylane-leases`. `share.rs` says
// how many streams a member of the group is to have.
//
// **What may a former owner still do?**
// Nothing that counts: acks, claims and counts of attempts compare the token beside the stream in
// the same step (`lease.rs`, `lua/`).
//
// **And by `XREADGROUP`, which compares nothing?**
// It may take entries, all above those that the owner has handed over. Each read asks for the first
// entry that is pending above those, and takes the entries between first (`core/cursor.rs`).
//
// **Why does nothing wait in `XREADGROUP`?**
// A process that is stopped there would take entries when it is gone. `XREAD` waits, and takes
// nothing (`reader.rs`).
//
// **Why is reading no script?**
// Entries that pass through Lua cost the server twice as much: 3.0 ms for 1,000 instead of 1.5
// (`reader.rs`).
//
// **What is the delivery count?**
// One more than the attempts that were noted. A process that takes over sets it, so that reading
// counts nothing (`guard.rs`, `page.lua`).
//
// **What of an attempt that was noted, and its connection broke?**
// While the process lives it knows that the attempt has not failed, and does not count it. If the
// entry goes to another process, the attempt counts: it cannot be told from a crash
// (`FailedAttempts`).
//
// **What if a connection breaks?**
// The source is opened again and goes on under the leases that it had, so no other process comes
// between its attempts and the entries that come again. It keeps the leases for as long as a lease
// lasts. If they are lost, the attempts end (`StreamSource::open`, `Starts::holds`).
//
// **What if one stream cannot be read?**
// It fails alone, as a part of the source. Its owner keeps it and tries again, until it works or is
// too much for this member. An ack that is refused loses the stream, so that the acks of the others
// do not wait behind it (`Worker::bear`, `tell` in `settle/sender.rs`).
//
// **What if the members of the group cannot be looked at?**
// The source goes on with those that it knew. The leases see to it that a stream has one owner. The
// shares may be uneven (`Membership::look`).
//
// **When is an old consumer removed?**
// In the step that sees that it has nothing pending: `XGROUP DELCONSUMER` forgets everything that
// is pending (`lua/`).

mod builder;
pub use builder::StreamBuilder;

mod config;
pub use config::{StreamStart, StreamTrim};

mod source;
pub use source::StreamSource;

mod held;

mod sink;
pub use sink::StreamSink;

mod letters;
pub use letters::StreamLetters;

mod letter;
pub use letter::StreamLetter;

mod position;
pub use position::StreamPosition;

mod id;
pub use id::{EntryId, NoEntryId};

mod partition;
pub use partition::partition_of;

mod origin;

mod record;
pub use record::StreamFields;

mod strays;

mod figures;
pub(crate) use figures::published_of_streams;

mod counts;
pub use counts::StreamCounts;

mod watch;
pub use watch::{StreamPart, StreamWatch};

// The tasks.
mod membership;
mod owner;
mod reader;
mod session;
mod worker;

mod core;
mod guard;
mod settle;

// Communication with the server.
mod answer;
mod lag;
mod lease;
mod script;
