//! What a question for the health of a dispatcher needs to know of the time before it.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_rt::{Mutex, lock};

/// Since when a dispatcher has no room and settles nothing, and since when handlers block.
///
/// The watchdog looks while something happens, and each question for the health looks too.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    full: Full,
    blocked: Option<Blocked>,
}

/// Handlers that block their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) handlers: usize,
    /// When the first of them was seen for the first time.
    pub(crate) since: Instant,
}

#[derive(Debug, Default)]
struct Full {
    since: Option<Instant>,
    settled: u64,
}

impl Full {
    fn look(&mut self, is_full: bool, settled: u64, now: Instant) -> Option<Instant> {
        let goes_on = is_full && settled == self.settled;
        self.settled = settled;
        self.since = match self.since {
            Some(since) if goes_on => Some(since),
            _ => is_full.then_some(now),
        };
        self.since
    }
}

impl Progress {
    /// So many messages have settled until now. Returns for how long there has been no room, with
    /// nothing settled.
    pub(crate) fn full(&self, is_full: bool, settled: u64, now: Instant) -> Option<Duration> {
        let since = lock(&self.0).full.look(is_full, settled, now)?;
        Some(now.saturating_duration_since(since))
    }

    /// These handlers block now.
    pub(crate) fn set_blocked(&self, blocked: Option<Blocked>) {
        lock(&self.0).blocked = blocked;
    }

    /// How many handlers block, and for how long the first of them does.
    pub(crate) fn blocked(&self, now: Instant) -> Option<(usize, Duration)> {
        let Blocked { handlers, since } = lock(&self.0).blocked?;
        Some((handlers, now.saturating_duration_since(since)))
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_last_settlement_while_it_is_full() {
        let (progress, start) = (Progress::default(), Instant::now());
        let look = |is_full, settled, second| {
            let now = start + Duration::from_secs(second);
            progress
                .full(is_full, settled, now)
                .map(|full| full.as_secs())
        };
        assert_eq!(look(false, 0, 0), None);
        // It was idle for long, and is full at once.
        assert_eq!(look(true, 0, 100), Some(0));
        assert_eq!(look(true, 0, 130), Some(30));
        assert_eq!(look(true, 1, 131), Some(0), "one has settled");
        assert_eq!(look(true, 1, 141), Some(10));
        assert_eq!(look(false, 1, 142), None, "the capacity was raised");
        assert_eq!(look(true, 1, 143), Some(0));
    }
}
