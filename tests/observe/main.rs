//! What can be seen from outside: spans and logs.
//!
//! Nothing else is here: subscribers are set per thread, but what they are asked is remembered per process.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod recorder;

mod described;
mod logs;
mod lost;
mod origins;
mod panicking;
mod spans;
