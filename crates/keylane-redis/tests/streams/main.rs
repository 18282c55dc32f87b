//! Streams on real servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acks;
mod attempts;
mod breaks;
mod clocks;
mod clusters;
mod conformance;
mod ends;
mod errors;
mod faults;
mod fences;
mod fields;
#[cfg(feature = "metrics")]
mod figures;
mod histories;
mod idle;
mod letters;
#[path = "../shared/logs.rs"]
mod logs;
mod names;
mod order;
mod parts;
mod processes;
mod rebalances;
#[path = "../shared/runtimes.rs"]
mod runtimes;
mod sentinels;
mod sinks;
#[path = "../shared/starts.rs"]
mod starts;
mod strays;
mod support;
mod trimmed;
mod unable;
mod watched;
