//! The inbox as the source of a dispatcher: order, paging, dead letters, versions, endings.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod endings;
mod letters;
mod order;
mod undecodable;
mod versions;
