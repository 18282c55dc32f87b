//! The time and the chance of a decision.

use std::time::SystemTime;

use tokio::time::Instant;

/// The inputs of a decision beside the messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: SystemTime,
    /// From 0 to 1.
    pub(crate) dice: f64,
}
