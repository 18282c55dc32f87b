//! Leases on a store whose answers are under control, in paused time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod endings;
mod holding;
mod limits;
mod losing;
mod support;
