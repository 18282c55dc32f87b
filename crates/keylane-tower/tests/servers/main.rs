//! The layer in front of real servers: the same scenarios for each, over real connections.
//!
//! Nothing is measured by the clock. Handlers are held at gates, and what happened is judged by its
//! history.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod front;
mod scenarios;
mod support;

mod grpc;
mod http;
mod hyper;
