#![doc = include_str!("../README.md")]

mod server;
pub use server::Redis;

mod error;
pub use error::{ConfigError, ErrorKind, RedisError};

// What speaks with the servers.
mod link;
mod names;
