//! The disciplines `Coalesce` and `Sequence`: what they promise, sentence by sentence, and attacks.

// A helper of a test is a test: where one panics, the test has failed.
#![allow(clippy::unwrap_used)]

mod support;

mod bad_input;
mod coalesce;
mod crowds;
mod endings;
mod gaps;
mod model;
mod sequence;
mod sharing;
mod store;
mod versions;
