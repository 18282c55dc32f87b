//! Lists on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod breaks;
mod conformance;
mod crew;
mod faults;
mod hostile;
mod late;
mod model;
mod plain;
mod processes;
mod sharing;
mod sink;
mod state;
mod story;
mod support;
