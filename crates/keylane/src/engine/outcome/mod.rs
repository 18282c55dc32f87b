//! Outcomes: the verdict on a failed attempt, and the one settlement of each message.

mod failed;

mod verdict;

mod left;

mod settle;
pub(super) use settle::Outcome;
pub(crate) use settle::Tally;
