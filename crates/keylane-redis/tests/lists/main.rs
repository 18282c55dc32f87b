//! Lists on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod attempts;
mod breaks;
mod conformance;
mod crew;
mod direct;
mod faults;
#[cfg(feature = "metrics")]
mod figures;
mod histories;
mod hostile;
mod idle;
mod late;
mod letters;
#[path = "../shared/logs.rs"]
mod logs;
mod model;
mod names;
mod plain;
mod processes;
mod refused;
#[path = "../shared/runtimes.rs"]
mod runtimes;
mod sharing;
mod sink;
mod sizes;
mod slots;
#[path = "../shared/starts.rs"]
mod starts;
mod state;
mod story;
mod support;
