//! The inbox in tables, on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod accepting;
mod attempts;
mod bouncer;
mod chaos;
mod clock;
mod ends;
mod entering;
mod errors;
mod faults;
mod fencing;
#[cfg(feature = "metrics")]
mod figures;
mod histories;
mod hostile;
mod hosts;
mod idle;
mod keyless;
mod leaving;
mod letters;
mod limits;
mod lines;
mod listening;
mod plans;
mod plans_mariadb;
mod rig;
mod rights;
mod secrets;
mod sessions;
mod source;
mod standby;
mod store;
mod throughput;
mod transactions;
mod uncommitted;
mod variables;

#[path = "../../../keylane-inbox/tests/support/raw.rs"]
mod raw;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of leases")]
mod support;
