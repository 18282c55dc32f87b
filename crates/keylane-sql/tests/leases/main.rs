//! Leases in real databases: PostgreSQL and MariaDB.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the inbox")]
mod support;

mod clock;
mod conformance;
mod elections;
mod faults;
mod fencing;
mod hosts;
mod lanes;
mod migrations;
mod secrets;
