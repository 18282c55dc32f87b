//! Evidence that a history does not contain.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::events::{Id, Key};

/// The knowledge of a test besides the history: its settings, and the figures it measured.
///
/// The checker assumes nothing. It does not judge rules whose evidence is missing.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub(super) quiescent: Option<Instant>,
    pub(super) max_attempts: Option<u32>,
    pub(super) early_letters: bool,
    pub(super) overflow_letters: bool,
    pub(super) handed_back: BTreeSet<Id>,
    pub(super) discarded: BTreeSet<Id>,
    pub(super) resumed: BTreeSet<Id>,
    pub(super) redelivers: bool,
    pub(super) duplicates: Option<BTreeSet<Id>>,
    pub(super) expired: Option<BTreeSet<Id>>,
    pub(super) coalescing: bool,
    pub(super) sequencing: bool,
    pub(super) gaps: Option<Gaps>,
    pub(super) concurrency: Option<usize>,
    pub(super) backoff: Duration,
    pub(super) reasons: Vec<Reason>,
    pub(super) faults: Option<Faults>,
    pub(super) lanes: Option<usize>,
    pub(super) permits: Option<Permits>,
    pub(super) heap: Option<Heap>,
    pub(super) drained: Option<Drained>,
    pub(super) throughput: Option<Throughput>,
}

impl Evidence {
    /// Creates empty evidence.
    pub fn new() -> Self {
        Self::default()
    }

    /// States that at `at` no task could go on: the history is complete.
    pub fn quiescent(mut self, at: Instant) -> Self {
        self.quiescent = Some(at);
        self
    }

    /// States that a message has at most this many attempts.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// States that a retry budget may end a message's attempts early.
    pub fn early_letters(mut self) -> Self {
        self.early_letters = true;
        self
    }

    /// States that a full lane dead-letters new messages, which then have no attempt.
    pub fn overflow_letters(mut self) -> Self {
        self.overflow_letters = true;
        self
    }

    /// States that these messages were given back unhandled, or interrupted and reported as such.
    pub fn handed_back(mut self, ids: impl IntoIterator<Item = Id>) -> Self {
        self.handed_back.extend(ids);
        self
    }

    /// States that these messages were discarded by policy: after the last attempt, from a full
    /// lane, or skipped.
    pub fn discarded(mut self, ids: impl IntoIterator<Item = Id>) -> Self {
        self.discarded.extend(ids);
        self
    }

    /// States that these messages were halted and resumed, so their attempts may be counted from 1
    /// again.
    pub fn resumed(mut self, ids: impl IntoIterator<Item = Id>) -> Self {
        self.resumed.extend(ids);
        self
    }

    /// States that the source hands messages over again without a reason, even acked ones. They may
    /// be handled again, and the order of a key is that of its first handlings.
    pub fn redelivers(mut self) -> Self {
        self.redelivers = true;
        self
    }

    /// States that exactly these messages were settled as duplicates of an earlier version.
    pub fn duplicates(mut self, ids: impl IntoIterator<Item = Id>) -> Self {
        self.duplicates.get_or_insert_default().extend(ids);
        self
    }

    /// States that exactly these messages were too old to be started.
    pub fn expired(mut self, ids: impl IntoIterator<Item = Id>) -> Self {
        self.expired.get_or_insert_default().extend(ids);
        self
    }

    /// States that lanes coalesce.
    pub fn coalescing(mut self) -> Self {
        self.coalescing = true;
        self
    }

    /// States that lanes handle versions in sequence.
    pub fn sequencing(mut self) -> Self {
        self.sequencing = true;
        self
    }

    /// States which missing versions were reported: the key, the first and the last of them, and
    /// when. A gap must be reported once it has been there for `patience`. For lanes whose versions
    /// must be contiguous.
    pub fn gaps(
        mut self,
        patience: Duration,
        reports: impl IntoIterator<Item = (Key, u64, u64, Instant)>,
    ) -> Self {
        self.gaps = Some(Gaps {
            patience,
            reports: reports.into_iter().collect(),
        });
        self
    }

    /// States that at most this many handlers run at once. While that many run, a lane may wait.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// States that a failed attempt may delay its lane for at most this long.
    pub fn backoff(mut self, longest: Duration) -> Self {
        self.backoff = longest;
        self
    }

    /// States that a lane (with `None`, every lane) had a reason to wait in this time: it was
    /// halted or paused, or there was no process.
    pub fn reason(mut self, key: impl Into<Option<Key>>, from: Instant, until: Instant) -> Self {
        self.reasons.push(Reason {
            key: key.into(),
            from,
            until,
        });
        self
    }

    /// States that no fault came after `stopped`. All work must end `within` that time after it, or
    /// after its send.
    pub fn faults(mut self, stopped: Instant, within: Duration) -> Self {
        self.faults = Some(Faults { stopped, within });
        self
    }

    /// States that this many lanes remained at quiescence.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// States that this many of `max` permits were free at quiescence.
    pub fn permits(mut self, free: usize, max: usize) -> Self {
        self.permits = Some(Permits { free, max });
        self
    }

    /// Adds the heap in bytes before the first message and at quiescence, and the allowed
    /// difference.
    pub fn heap(mut self, before: u64, after: u64, slack: u64) -> Self {
        self.heap = Some(Heap {
            before,
            after,
            slack,
        });
        self
    }

    /// Adds the report of a drain.
    pub fn drained(mut self, drained: Drained) -> Self {
        self.drained = Some(drained);
        self
    }

    /// Adds the throughput of the other keys with one key blocked for ever, and without.
    pub fn throughput(mut self, with_blocked: f64, without: f64) -> Self {
        self.throughput = Some(Throughput {
            with_blocked,
            without,
        });
        self
    }
}

/// The report of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// [`History::position`](crate::History::position) when the drain returned.
    pub position: usize,
    /// Messages accepted.
    pub accepted: u64,
    /// Messages done.
    pub done: u64,
    /// Messages dead-lettered.
    pub dead_lettered: u64,
    /// Messages discarded by policy.
    pub discarded: u64,
    /// Messages that another one replaced.
    pub coalesced: u64,
    /// Messages whose version had already arrived.
    pub duplicates: u64,
    /// Messages that were too old to be started.
    pub expired: u64,
    /// Messages handed back.
    pub handed_back: u64,
}

/// The reports of missing versions.
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    pub(super) patience: Duration,
    pub(super) reports: Vec<(Key, u64, u64, Instant)>,
}

/// The reason why a lane may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reason {
    pub(super) key: Option<Key>,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

/// The time by which work had to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub(super) stopped: Instant,
    pub(super) within: Duration,
}

/// The remaining permits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permits {
    pub(super) free: usize,
    pub(super) max: usize,
}

/// The remaining heap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heap {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) slack: u64,
}

/// The throughput of the other keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Throughput {
    pub(super) with_blocked: f64,
    pub(super) without: f64,
}
