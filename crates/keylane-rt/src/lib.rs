//! What the crates of [keylane](https://docs.rs/keylane) stand on: a runtime, a clock, and calls of
//! the user's code that may panic.
//!
//! Everything that can be scheduled, blocked or woken comes from here. It is Tokio's, or with
//! `--cfg keylane_shuttle` that of a model checker, which then explores the interleavings of the
//! very code that users run.
//!
//! It has no stable API: use `keylane` instead.

mod runtime;
pub use runtime::*;

pub mod clock;

pub mod unwind;

mod prehashed;
pub use prehashed::BuildPrehashed;

mod text;
pub use text::cut;
