//! The context of messages through real servers.

#[path = "../support/mod.rs"]
mod support;

mod collector;
mod kafka;
mod lists;
mod sql;
mod topics;
