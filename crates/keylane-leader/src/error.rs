//! Errors, one small type for each operation.

use std::time::Duration;

use keylane_leases::{LONGEST_TTL, SHORTEST_TTL};
use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::store::CandidateId;

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
    /// The store cannot grant a term for so long.
    #[error(
        "the time to live of a term is {ttl:?}, but this store grants {longest:?} at most: set a \
         shorter `ttl`, or a longer time-out of the store's session"
    )]
    TtlOfStore {
        /// The time to live that was set.
        ttl: Duration,
        /// The longest one that the store grants.
        longest: Duration,
    },
    /// This setting must be longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// The id of the candidate is not 1 to 100 bytes of visible ASCII without `/`.
    #[error("the id `{0}` is no id of a candidate: use 1 to 100 visible ASCII characters, no `/`")]
    Id(String),
    /// A candidate with this id takes part in the same election already, through the same
    /// [`Elections`](crate::Elections).
    #[error(
        "a candidate with the id `{0}` takes part in this election already: give each candidate an \
         id of its own, or await `Office::close` of the other one first"
    )]
    IdTaken(CandidateId),
}

text_in_debug! { CandidateError: Ttl, TtlOfStore, Zero, Id, IdTaken }

/// A command to an [`Office`](crate::Office) that has no effect.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The candidate does not lead.
    #[error("the candidate does not lead, so there is nothing to resign from")]
    NotLeading,
    /// The candidate is over.
    #[error("the candidate is over: stand with another one")]
    Over,
}

text_in_debug! { CommandError: NotLeading, Over }

/// A [`LeaderWatch`](crate::LeaderWatch) has ended: its office is over, its elections were closed, or
/// their runtime is gone. It says nothing more about who leads.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "this watch has ended, and does not know who leads: use `Elections::watch` for another one"
)]
pub struct WatchEnded;

text_in_debug! { WatchEnded }
