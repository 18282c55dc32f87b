//! What an operator watches: events, the hottest keys, and what comes after a rest.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod events;
mod health;
mod holding;
mod hottest;
mod lane;
mod rest;
mod support;
