//! Rates: how often something may start.

mod memory;
pub(crate) use memory::{RateMemory, Remembered};

mod spec;
pub use spec::Rate;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod against_governor;
