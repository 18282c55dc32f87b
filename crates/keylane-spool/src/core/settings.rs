//! The settings for the decisions.

use std::time::Duration;

use crate::policy::{AtLimit, Persist};

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) linger: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) batch: Batch,
    pub(crate) in_flight: usize,
    pub(crate) persist: Persist,
    pub(crate) at_limit: AtLimit,
    pub(crate) memory: usize,
    /// `None` without a directory.
    pub(crate) disk: Option<u64>,
    pub(crate) max_message: usize,
    /// Whether a refused message halts its key.
    pub(crate) halts: bool,
}

impl Settings {
    /// Returns the most bytes of all messages.
    pub(crate) fn capacity(&self) -> u64 {
        self.disk.unwrap_or(self.memory as u64)
    }

    /// Returns the most bytes in the line, in flight and halted. With a disk, half of the memory. A
    /// page may exceed it by one message, which is up to a quarter.
    pub(crate) fn window(&self) -> usize {
        match self.disk {
            Some(_) => self.memory / 2,
            None => self.memory,
        }
    }

    /// Returns the most bytes on their way to the disk.
    pub(crate) fn arriving(&self) -> usize {
        self.memory / 4
    }

    /// Returns how many entries of the line a plan looks at.
    pub(crate) fn look_ahead(&self) -> usize {
        self.batch.count.saturating_mul(4).max(1024)
    }
}
