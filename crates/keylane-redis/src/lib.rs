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

// What speaks with the servers.
mod link;
mod names;
