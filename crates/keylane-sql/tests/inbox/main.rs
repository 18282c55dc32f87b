//! The inbox in tables, on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod accepting;
mod chaos;
mod faults;
mod fencing;
mod hostile;
mod keyless;
mod letters;
mod plans;
mod plans_mariadb;
mod rig;
mod rights;
mod secrets;
mod source;
mod store;
mod transactions;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of leases")]
mod support;
