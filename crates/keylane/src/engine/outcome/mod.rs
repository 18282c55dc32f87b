//! What becomes of a message: the verdict on a failed attempt, and its one settlement.

mod failed;

mod verdict;

mod settle;
pub(super) use settle::Outcome;
pub(crate) use settle::{Share, Tally};
