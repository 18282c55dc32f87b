//! Leases in real databases: PostgreSQL and MariaDB.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../support.rs"]
mod support;

mod conformance;
mod faults;
mod fencing;
mod migrations;
mod secrets;
