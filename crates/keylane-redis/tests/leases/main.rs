//! Leases in real servers: Redis and Valkey.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod clocks;
mod conformance;
mod cost;
mod failover;
mod faults;
mod fencing;
mod limits;
mod servers;
mod support;
mod tokens;
