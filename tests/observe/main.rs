//! What can be seen from outside: spans, events, the hottest keys.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod recorder;

mod spans;

mod events;
mod hottest;
