//! The source against a real broker.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bequests;
mod conformance;
mod control;
mod hostile;
mod hot_keys;
mod letters;
mod logs;
mod outages;
mod prefetch;
mod processes;
mod rebalances;
mod records;
mod redrives;
mod resume;
mod returned;
mod rights;
mod secured;
mod sending;
mod stage;
mod support;
mod vectors;
