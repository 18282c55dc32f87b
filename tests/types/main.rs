//! What users lean on without calling it: which types may go where, and what the compiler says.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod compiler;
mod table;
