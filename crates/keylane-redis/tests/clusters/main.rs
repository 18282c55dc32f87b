//! Primaries that are lost while workers are at a list or at streams, and replicas that take over.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod sentinel;
mod worker;
