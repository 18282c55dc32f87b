#![doc = include_str!("../README.md")]

// # How it works
//
// There are four parts: `list/`, `stream/`, `leases/` and `rate/`. They do not know each other,
// with one exception: `stream/` owns its streams by `leases/`. All of them speak with the server by
// `link.rs`, in scripts beside their code, in folders `lua/`. Each begins with a page in its
// `mod.rs`.

mod server;
pub use server::Redis;

mod error;
pub use error::RedisError;
pub use keylane_connector::{ConfigError, ErrorKind};

mod list;
pub use list::{
    HandOut, KeyHolder, ListBuilder, ListKey, ListPosition, ListQueue, ListSource, ListStatus,
    WorkerStatus,
};

#[cfg(feature = "spool")]
mod spooled;

mod leases;
pub use leases::RedisLeases;

mod rate;
pub use rate::{Quota, SharedRate, SharedRateBuilder, TryAcquireError, WhenAway};

mod stream;
pub use stream::{
    EntryId, NoEntryId, StreamBuilder, StreamCounts, StreamFields, StreamPosition, StreamSink,
    StreamSource, StreamStart, StreamTrim, StreamWatch, partition_of,
};

// Communication with the servers.
mod inspect;
mod link;
mod names;
mod reconnecting_link;
mod script;
mod sentinel;
