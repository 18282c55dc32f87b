//! Rates that processes share, with real servers: Redis and Valkey.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod away;
mod bound;
mod calls;
mod clocks;
mod endings;
mod limits;
mod support;
