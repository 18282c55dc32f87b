//! What the engine costs in bytes and allocations, counted by the allocator of this process.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod allocations;
mod baseline;
mod idle_dispatchers;
mod in_flight;
mod rates;
mod semaphore;
