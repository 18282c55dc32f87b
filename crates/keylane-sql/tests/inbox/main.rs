//! The inbox in tables, on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod chaos;
mod faults;
mod fencing;
mod hostile;
mod keyless;
mod rig;
mod secrets;
mod source;
mod store;

#[path = "../support.rs"]
#[allow(dead_code, reason = "shared with the tests of leases")]
mod support;
