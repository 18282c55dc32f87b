//! The disciplines `Coalesce` and `Sequence`: what they promise, sentence by sentence, and attacks.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod bad_input;
mod coalesce;
mod crowds;
mod endings;
mod first_message;
mod gaps;
mod model;
mod sequence;
mod sharing;
mod store;
mod versions;
