//! The console of a running service, asked over HTTP.

mod address;
pub(crate) use address::{Address, encoded};

mod client;
pub(crate) use client::Console;

mod error;
pub(crate) use error::ConsoleError;

mod events;

mod token;
pub(crate) use token::Token;
