//! The guarantees of the stream adapters. Most of it runs without a runtime, by hand.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod bounds;
mod ending;
mod errors;
mod hard_input;
mod local;
mod model;
mod order;
mod panics;
mod sink;
