//! The console of a running service, asked over HTTP, with TLS or without.

mod access;
pub(crate) use access::Access;

mod address;
pub(crate) use address::{Address, encoded};

mod client;
pub(crate) use client::Console;

mod connection;

mod error;
pub(crate) use error::ConsoleError;

mod events;

mod token;
