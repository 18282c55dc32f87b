#![doc = include_str!("../README.md")]

mod server;
pub use server::Redis;

mod error;
pub use error::{ConfigError, ErrorKind, RedisError};

mod list;
pub use list::{
    KeyHolder, ListBuilder, ListKey, ListPosition, ListQueue, ListSource, ListStatus, WorkerStatus,
};

mod letter;
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
mod link;
mod names;
mod script;
