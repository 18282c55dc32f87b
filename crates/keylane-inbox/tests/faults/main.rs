//! Disks that fail, and power that fails: what was confirmed is there, and what was not is said.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod disk;
mod failing;
mod full;
mod power;
mod silent;

#[path = "../support/tmpfs.rs"]
mod tmpfs;
