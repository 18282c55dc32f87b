//! The inbox as the source of a dispatcher: order, paging, dead letters, versions, endings.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

#[path = "../support/raw.rs"]
mod raw;

mod conformance;
mod crash;
mod done;
mod endings;
mod hindered;
mod kill;
mod letters;
mod lines;
mod logged;
mod memory;
mod order;
mod undecodable;
mod versions;
