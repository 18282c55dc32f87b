//! ZooKeeper: leases, elections and fenced writes, on real servers.
//!
//! The servers must be installed: `cargo xtask setup`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

mod closed;
mod conformance;
mod elections;
mod errors;
mod faults;
mod fencing;
mod holding;
mod support;
mod waiting;
