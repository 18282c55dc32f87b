//! Batches, expiry, delays, rates, and the control of one key.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod bad_input;
mod batches;
mod delayed;
mod endings;
mod expiry;
mod model;
mod operator;
mod pause;
mod rates;
mod resized;
mod states;
mod threads;
