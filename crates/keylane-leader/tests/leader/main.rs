//! Candidates on a store whose answers are under control, in paused time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod changes;
#[cfg(feature = "consume")]
mod consuming;
mod faults;
mod lessons;
mod odd;
mod phases;
mod support;
