//! The guarantees of the turnstile.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod naive;
mod rig;

mod bare;
mod close;
mod keyless;
mod leaving;
mod limits;
mod model;
mod order;
mod panics;
mod threads;
mod wakers;
