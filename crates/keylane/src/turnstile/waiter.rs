//! Somebody who waits, and how far it has come.

use std::task::{Context, Poll, Waker};

use crate::engine::{dropped, shielded};
use crate::rt::atomic::{AtomicU8, Ordering};
use crate::rt::{Mutex, lock};

/// How far somebody who waits has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// In a lane, behind its head.
    Parked,
    /// In the line of a gate.
    Called,
    /// It has what it waited for, or is about to see that it has.
    Granted,
    /// Its owner has left.
    Gone,
    /// Sent home from its lane.
    Dismissed,
    /// Sent home from a line: if it is the head of a lane, that lane has to be moved on.
    Recalled,
}

/// Shared by the one who waits and the place where it does.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Partner of every load and exchange: the one that wrote before it; what was done for the waiter
    /// is seen by it.
    stage: AtomicU8,
    /// Under its lock none of the user's code runs: a waker is cloned before, woken and dropped after.
    waker: Mutex<Option<Waker>>,
}

impl Stage {
    const ALL: [Self; 6] = [
        Self::Parked,
        Self::Called,
        Self::Granted,
        Self::Gone,
        Self::Dismissed,
        Self::Recalled,
    ];
}

impl Waiter {
    pub(super) fn new(stage: Stage) -> Self {
        Self {
            stage: AtomicU8::new(stage as u8),
            waker: Mutex::default(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Acquire))]
    }

    /// Goes from one stage to another, unless somebody else was faster.
    pub(super) fn shift(&self, from: Stage, to: Stage) -> bool {
        self.stage
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Not under a lock: the waker is the user's, and may panic or come back here.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            shielded(|| waker.wake());
        }
    }

    /// Its owner is about to leave: drops the waker, which may hold a whole task, so that whoever
    /// sweeps the waiter out under a lock drops nothing of the user's.
    pub(super) fn hush(&self) {
        if cfg!(keylane_mutant = "turnstile-waker-kept") {
            return;
        }
        let waker = lock(&self.waker).take();
        dropped(waker);
    }

    fn register(&self, waker: &Waker) {
        let same = |old: &Waker| old.will_wake(waker);
        if lock(&self.waker).as_ref().is_some_and(same) {
            return;
        }
        let waker = waker.clone();
        let old = lock(&self.waker).replace(waker);
        drop(old);
    }

    /// Ready once it is neither parked nor called.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Stage> {
        let mut stage = self.stage();
        if matches!(stage, Stage::Parked | Stage::Called) {
            self.register(cx.waker());
            if !cfg!(keylane_mutant = "turnstile-lost-wake") {
                // It may have come just before.
                stage = self.stage();
            }
        }
        match stage {
            Stage::Parked | Stage::Called => Poll::Pending,
            ended => Poll::Ready(ended),
        }
    }
}
