//! The embedded store: the suite that all stores must pass, and what is its own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod duplicates;
mod model;
mod queue;
mod size;
mod sync;
