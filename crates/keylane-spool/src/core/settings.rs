//! The settings that the decisions need.

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
    /// A key is halted by a message that is refused.
    pub(crate) halts: bool,
}

impl Settings {
    /// Most bytes of all messages.
    pub(crate) fn capacity(&self) -> u64 {
        self.disk.unwrap_or(self.memory as u64)
    }

    /// Most bytes in the line, in flight and halted. With a disk, half of the memory. A page may go
    /// beyond it by one message, which is up to a quarter.
    pub(crate) fn window(&self) -> usize {
        match self.disk {
            Some(_) => self.memory / 2,
            None => self.memory,
        }
    }

    /// Most bytes on their way to the disk.
    pub(crate) fn arriving(&self) -> usize {
        self.memory / 4
    }

    /// How many entries of the line a plan looks at.
    pub(crate) fn look_ahead(&self) -> usize {
        self.batch.count.saturating_mul(4).max(1024)
    }
}
