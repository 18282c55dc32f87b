//! The guarantees of the pull queue.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod bad_input;
mod cancel_safety;
mod capacity;
mod ending;
mod fairness;
mod leases;
mod model;
mod order;
mod panics;
mod runtime_dropped;
mod threads;
