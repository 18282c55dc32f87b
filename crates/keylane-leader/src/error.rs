//! Errors, one small type for each operation.

use std::time::Duration;

use keylane_leases::{LONGEST_TTL, SHORTEST_TTL};
use keylane_rt::text_in_debug;
use thiserror::Error;

pub use keylane_leases::error::{LeaseLost, OpenError, StoreError};

/// The reason why a candidate could not be started.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum CandidateError {
    /// The time to live is shorter than 100 milliseconds or longer than a day.
    #[error(
        "the time to live of a term must be from {SHORTEST_TTL:?} to {LONGEST_TTL:?}, but is {0:?}"
    )]
    Ttl(Duration),
    /// This setting must be longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// The id of the candidate is not 1 to 100 bytes of visible ASCII without `/`.
    #[error("the id `{0}` is no id of a candidate: use 1 to 100 visible ASCII characters, no `/`")]
    Id(String),
}

text_in_debug! { CandidateError: Ttl, Zero, Id }

/// A command to an [`Office`](crate::Office) that has no effect.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The candidate does not lead.
    #[error("the candidate does not lead")]
    NotLeading,
    /// The candidate is over.
    #[error("the candidate is over")]
    Over,
}

text_in_debug! { CommandError: NotLeading, Over }
