//! The messages that are only on the disk.

use std::ops::RangeInclusive;

use crate::journal::Found;

/// All records of the journal from `from` to `to`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tail {
    from: u64,
    to: u64,
    messages: u64,
}

impl Tail {
    /// Creates the tail at the start, when all messages of the journal are only on the disk.
    pub(crate) fn found(found: Found) -> Self {
        let (from, to) = found.range.unwrap_or_default();
        Self {
            from,
            to,
            messages: found.messages,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns a lower bound of their sequences.
    pub(crate) fn first(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.from)
    }

    pub(crate) fn push(&mut self, sequence: u64) {
        if self.is_empty() {
            self.from = sequence;
        }
        self.to = sequence;
        self.messages += 1;
    }

    pub(crate) fn range(&self) -> RangeInclusive<u64> {
        self.from..=self.to
    }

    /// Records that a page was read that ends here.
    pub(crate) fn read(&mut self, messages: u64, last: u64) {
        self.messages = self.messages.saturating_sub(messages);
        self.from = last + 1;
    }
}
