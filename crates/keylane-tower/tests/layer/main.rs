//! The layer in front of a scripted service: `tower-test`'s mock, polled by hand.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod contract;
mod dropped;
mod finished;
mod handler;
mod hard_services;
mod limits;
mod order;
mod stacks;
mod support;
