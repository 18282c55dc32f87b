//! The next faults of the server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::call::{Call, Loss};
use crate::scenario::Random;

/// Faults that were ordered and have not happened yet.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// So many calls of `settle` never arrive.
    pub(super) lost_settles: (usize, Loss),
    /// So many calls of `confirm` do nothing.
    pub(super) lost_confirms: (usize, Loss),
    /// So many calls of `settle` find the connection cut.
    pub(super) cuts: usize,
    /// So many messages beyond the room.
    pub(super) beyond_room: usize,
    /// So many messages are handed over twice under one position.
    pub(super) twice: usize,
    /// So many calls of a kind panic, or fail.
    pub(super) panics: BTreeMap<Call, usize>,
    pub(super) errors: BTreeMap<Call, usize>,
    /// Each call takes so long.
    pub(super) delay: Duration,
    /// So many letters are refused, and so many attempts may not start.
    pub(super) refused_letters: usize,
    pub(super) refused_starts: usize,
    pub(super) asks_until_noted: u32,
    pub(super) accepts_stale: bool,
    /// Parts that fail, with the reason, or work again.
    pub(super) parts: Vec<(String, Option<String>)>,
    pub(super) storm: Option<Storm>,
}

/// Each message is handed over again, at random times.
#[derive(Debug)]
pub(super) struct Storm {
    pub(super) random: Random,
    /// Within this time after its first delivery.
    pub(super) within: Duration,
}

/// Takes one of so many.
pub(super) fn take(left: &mut usize) -> bool {
    let any = *left > 0;
    *left -= usize::from(any);
    any
}
