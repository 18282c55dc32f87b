//! The dashboard, the alerts and the list in the README name what the crates publish: all of it,
//! and nothing else.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod alerts;
mod dashboard;
#[cfg(feature = "metrics")]
mod figures;
mod names;
mod query;
mod readme;
#[cfg(feature = "metrics")]
mod scrape;
