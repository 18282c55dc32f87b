//! Lanes that are leased: several dispatchers, each as in a process of its own, with one store.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../leases/support.rs"]
#[allow(dead_code, reason = "shared with the tests of leases")]
mod support;

mod rig;

mod exclusion;
mod losing;
mod room;
