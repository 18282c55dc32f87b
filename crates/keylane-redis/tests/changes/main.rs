//! Leaders in processes that are killed, paused, cut off and replaced.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod crowd;
mod leaders;
mod queue;
mod site;
