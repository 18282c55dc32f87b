//! The settings that the decisions need.

use std::time::Duration;

use crate::spool::policy::{AtLimit, Persist};

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::spool) struct Batch {
    pub(in crate::spool) count: usize,
    pub(in crate::spool) bytes: usize,
    pub(in crate::spool) linger: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::spool) struct Settings {
    pub(in crate::spool) batch: Batch,
    pub(in crate::spool) in_flight: usize,
    pub(in crate::spool) persist: Persist,
    pub(in crate::spool) at_limit: AtLimit,
    pub(in crate::spool) memory: usize,
    /// `None` without a directory.
    pub(in crate::spool) disk: Option<u64>,
    pub(in crate::spool) max_message: usize,
    /// A key is halted by a message that is refused.
    pub(in crate::spool) halts: bool,
}

impl Settings {
    /// Most bytes of all messages.
    pub(in crate::spool) fn capacity(&self) -> u64 {
        self.disk.unwrap_or(self.memory as u64)
    }

    /// Most bytes in the line, in flight and halted. With a disk, half of the memory. A page may go
    /// beyond it by one message, which is up to a quarter.
    pub(in crate::spool) fn window(&self) -> usize {
        match self.disk {
            Some(_) => self.memory / 2,
            None => self.memory,
        }
    }

    /// Most bytes on their way to the disk.
    pub(in crate::spool) fn arriving(&self) -> usize {
        self.memory / 4
    }

    /// How many entries of the line a plan looks at.
    pub(in crate::spool) fn look_ahead(&self) -> usize {
        self.batch.count.saturating_mul(4).max(1024)
    }
}
