//! When the file is made smaller.

use std::sync::PoisonError;

use super::fault::{Fault, guarded};
use super::shared::{Counts, Shared, State};

/// redb gives free pages at the end of the file back in part, and never moves what lies behind
/// them. So a file that a backlog has made large stays large, unless it is compacted: all live pages
/// move to the front. That costs as much as reading and writing what is live, while nothing else is
/// written or read; so it is done only when it gains more than it moves.
#[derive(Debug)]
pub(super) struct Compaction {
    /// A file below this is left alone.
    above: u64,
    /// The length after the last compaction: what it could not do better.
    least: u64,
}

impl Compaction {
    pub(super) fn new(above: u64) -> Self {
        Self { above, least: 0 }
    }

    /// Whether the file is more than twice as long as it needs to be.
    pub(super) fn is_worth(&self, file: u64, live: u64) -> bool {
        file > self.above && file > live.saturating_mul(2) && file > self.least.saturating_mul(2)
    }

    /// Makes the file as short as it can be. Answers with its length.
    pub(super) fn run(&mut self, shared: &Shared, live: u64) -> Result<u64, Fault> {
        let before = shared.watch.length();
        // No read is under way: redb would refuse.
        let mut state = shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let State::Open(database) = &mut *state else {
            return Err(Fault::Refused("it is not open".into()));
        };
        guarded(|| Ok(database.compact()?))?;
        drop(state);
        self.least = shared.watch.length();
        Counts::add(&shared.counts.compactions);
        tracing::debug!(before, after = self.least, live, "compacted");
        Ok(self.least)
    }
}
