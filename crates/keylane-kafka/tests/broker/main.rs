//! The source against a real broker.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod beginnings;
mod bequests;
mod codecs;
mod conformance;
mod control;
mod hazards;
mod hostile;
mod hot_keys;
mod kept_letters;
mod leaderless;
mod letters;
mod logs;
mod loudness;
mod names;
mod outages;
mod patterns;
mod prefetch;
mod processes;
mod protocol;
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
mod unreadable;
mod vectors;
