//! What an exporter sees of attempts, sends and settlements.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod attempts;
mod batches;
mod contexts;
mod kept;
mod sends;
mod settles;
