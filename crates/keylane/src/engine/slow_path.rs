//! Whether a job must be looked at before it starts.

use keylane_rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use keylane_rt::{Arc, OwnLine};

/// Why a job may have to wait although no other job of its key is in front of it.
///
/// Every message reads these relaxed. They have no partner: they only say whether to check, and a
/// check of a paused key takes the shard's lock. Plain messages are not checked on their way,
/// because then the compiler would move them field by field.
#[derive(Debug, Default)]
pub(crate) struct SlowPath {
    /// Lanes that are paused.
    pub(super) paused: AtomicUsize,
    /// Whether any message ever came that is delayed or expires.
    untimely: AtomicBool,
    /// Sources that count attempts, and revocations that are under way. One more for ever where
    /// lanes are leased.
    guards: AtomicUsize,
    /// Whether a lane with a discipline decides what starts when a runner takes its first message.
    pub(super) rejoins: bool,
}

/// While it exists, jobs are checked before they start.
pub(crate) struct GuardedStarts(Arc<OwnLine<SlowPath>>);

impl GuardedStarts {
    pub(super) fn new(slow_path: &Arc<OwnLine<SlowPath>>) -> Self {
        slow_path.guards.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(slow_path))
    }
}

impl Drop for GuardedStarts {
    fn drop(&mut self) {
        self.0.guards.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SlowPath {
    pub(super) fn new(is_leased: bool, rejoins: bool) -> Self {
        Self {
            guards: AtomicUsize::new(usize::from(is_leased)),
            rejoins,
            ..Self::default()
        }
    }

    /// Whether any message came that is delayed or expires.
    #[inline]
    pub(crate) fn may_be_untimely(&self) -> bool {
        self.untimely.load(Ordering::Relaxed)
    }

    /// Records that a message that is delayed or expires is about to be sent.
    pub(crate) fn expect_untimely(&self) {
        if !self.may_be_untimely() {
            self.untimely.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the lane of a job may have something else to start instead.
    #[inline]
    pub(crate) fn takes_slow_path(&self) -> bool {
        self.may_be_untimely() || self.has_paused() || self.rejoins
    }

    /// Whether a source, or a lease, has a say before a job starts.
    #[inline]
    pub(crate) fn guards_starts(&self) -> bool {
        self.guards.load(Ordering::Relaxed) > 0
    }

    /// Whether any lane is paused.
    #[inline]
    pub(crate) fn has_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed) > 0
    }
}
