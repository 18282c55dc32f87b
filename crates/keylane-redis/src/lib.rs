#![doc = include_str!("../README.md")]

// # How it works
//
// There are five parts: `list/`, `stream/`, `leases/`, `elections/` and `rate/`. They do not know
// each other, with two exceptions: `stream/` owns its streams by `leases/`, and the terms of
// `elections/` are leases. All of them speak with the server by
// `link.rs`, in scripts beside their code, in folders `lua/`. Each begins with a page in its
// `mod.rs`.

mod server;
pub use server::Redis;

mod error;
pub use error::RedisError;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use keylane_connector::tls::Certificates;
pub use keylane_connector::tls::TlsFailure;
pub use keylane_connector::{ConfigError, ErrorKind};

mod list;
pub use list::{
    HandOut, KeyHolder, ListBuilder, ListKey, ListLetter, ListLetters, ListPosition, ListQueue,
    ListSource, ListStatus, WorkerStatus,
};

#[cfg(feature = "spool")]
mod spooled;

mod leases;
pub use leases::RedisLeases;

mod elections;
pub use elections::{Fence, FenceError, RedisElections};

mod rate;
pub use rate::{Quota, SharedRate, SharedRateBuilder, TryAcquireError, WhenAway};

mod stream;
pub use stream::{
    EntryId, NoEntryId, StreamBuilder, StreamCounts, StreamFields, StreamLetter, StreamLetters,
    StreamPart, StreamPosition, StreamSink, StreamSource, StreamStart, StreamTrim, StreamWatch,
    partition_of,
};

mod metrics;
pub use metrics::published_metrics;

// Communication with the servers.
mod inspect;
mod link;
mod names;
mod reconnecting_link;
mod script;
mod sentinel;
mod tls;
