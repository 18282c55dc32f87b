//! The end of a queue.

use std::fmt;

/// What became of every message that a queue ever accepted.
///
/// `completed + given_up + handed_back + unsettled = accepted`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Messages accepted in the life of the queue.
    pub accepted: u64,
    /// Messages whose lease was completed.
    pub completed: u64,
    /// Messages that a worker gave up on.
    pub given_up: u64,
    /// Messages taken back with `take_parked`.
    pub handed_back: u64,
    /// Messages that have not settled: 0 at the end of a drain, unless the runtime of the queue went
    /// first.
    pub unsettled: u64,
}

impl fmt::Display for QueueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accepted = {} completed + {} given up + {} handed back",
            self.accepted, self.completed, self.given_up, self.handed_back
        )?;
        if self.unsettled > 0 {
            write!(f, " + {} unsettled", self.unsettled)?;
        }
        Ok(())
    }
}
