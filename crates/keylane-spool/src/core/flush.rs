//! Whether everything up to a message is delivered.

use super::{Core, Stage};

/// The progress of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Done,
    Pending,
    /// The remaining messages belong to this many halted keys.
    Halted(usize),
    Ended,
}

impl Core {
    /// Sends the accepted messages, without waiting for batches to fill. The answer is for
    /// [`flushed`](Self::flushed).
    pub(crate) fn flush(&mut self) -> u64 {
        self.flush_upto = self.next_sequence - 1;
        self.wakes.driver = true;
        self.flush_upto
    }

    pub(crate) fn flushed(&self, upto: u64) -> Flush {
        if self.stage == Stage::Ended {
            let is_left = self.left.oldest.is_some_and(|oldest| oldest <= upto);
            return if is_left { Flush::Ended } else { Flush::Done };
        }
        let line = self.line.front().map(|entry| entry.sequence());
        let arriving = self
            .arriving
            .front()
            .map(|arriving| arriving.entry.sequence());
        let flying = self.flying().map(|entry| entry.sequence()).min();
        let mut moving = [line, arriving, flying, self.tail.first()]
            .into_iter()
            .flatten();
        let is_halted = self.halted.iter().any(|entry| entry.sequence() <= upto);
        let is_moving =
            moving.any(|sequence| sequence <= upto) || (is_halted && !self.settings.halts);
        match (is_moving, is_halted) {
            (false, false) => Flush::Done,
            (true, true) if self.is_stuck() => Flush::Halted(self.halted.keys()),
            (true, _) => Flush::Pending,
            (false, true) => Flush::Halted(self.halted.keys()),
        }
    }
}
