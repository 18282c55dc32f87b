//! The inbox as a source: it claims keys, and reads the messages of its keys.
//!
//! One round trip at a time carries both the done-marks and the request for more, see
//! [`RoundTrip`]. [`Lanes`], which knows no database, keeps the claims and decides what to report
//! and to request next.
//!
//! [`RoundTrip`]: super::turn::RoundTrip
//! [`Lanes`]: core::Lanes

mod backlog;

mod call;

mod failures;

mod guard;

mod core;

mod settle;

mod position;
pub use position::SqlPosition;

mod reader;
pub use reader::SqlSource;

mod session;

#[cfg(test)]
mod simulation;

mod config;
pub use config::SourceSettings;
