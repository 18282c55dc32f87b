//! The counts of a queue.

use std::fmt;

/// The outcomes of all messages that a queue accepted.
///
/// `completed + given_up + handed_back + unsettled = accepted`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages accepted since the queue was spawned.
    pub accepted: u64,
    /// Messages whose lease was completed.
    pub completed: u64,
    /// Messages that a worker gave up on.
    pub given_up: u64,
    /// Messages taken back with [`take_parked`](super::Queue::take_parked).
    pub handed_back: u64,
    /// Messages that have not settled. After [`drain`](super::Queue::drain) there are none, unless
    /// the runtime of the queue was dropped before.
    pub unsettled: u64,
}

impl fmt::Display for Report {
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
