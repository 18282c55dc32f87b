//! The context of messages through real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod collector;
mod kafka;
mod lists;
mod sql;
mod streams;
mod topics;
