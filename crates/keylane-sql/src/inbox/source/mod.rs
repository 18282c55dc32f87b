//! The inbox as a source: it claims keys, and reads the messages of those that it has.
//!
//! One round trip at a time: done-marks go out with the wish for more, see [`RoundTrip`]. What is
//! claimed, and what to say and to ask next, is decided by [`Lanes`], which knows no database.
//!
//! [`RoundTrip`]: super::turn::RoundTrip
//! [`Lanes`]: lanes::Lanes

mod failures;

mod guard;

mod lanes;

mod letters;

mod reader;
pub use reader::{Position, SqlSource};

mod session;

#[cfg(test)]
mod simulation;

mod settings;
pub use settings::SourceSettings;
