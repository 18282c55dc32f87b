//! Streams on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acks;
mod attempts;
mod breaks;
mod clusters;
mod conformance;
mod faults;
mod fences;
mod fields;
mod order;
mod processes;
mod rebalances;
mod sinks;
mod support;
