//! The spool through its public face.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod disk;
mod ending;
mod kill;
mod limits;
mod refusals;
mod sinks;
mod support;

#[path = "../support/tmpfs.rs"]
mod tmpfs;
