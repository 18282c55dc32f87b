//! The guarantees of the keyed semaphore.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod naive;
mod support;

mod bare;
mod close;
mod keyless;
mod leaving;
mod limits;
mod model;
mod order;
mod panics;
mod threads;
mod try_acquire;
mod wakers;
