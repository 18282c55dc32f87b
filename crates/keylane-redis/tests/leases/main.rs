//! Leases and elections in real servers: Redis and Valkey.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod clocks;
mod conformance;
mod cost;
mod elections;
mod failover;
mod faults;
mod fencing;
mod limits;
#[path = "../shared/logs.rs"]
mod logs;
mod servers;
mod support;
mod tokens;
