//! A waiter: what waits in a lane or in a line, and how far it has come.

use std::task::{Context, Poll, Waker};

use keylane_rt::atomic::{AtomicU8, AtomicUsize, Ordering};
use keylane_rt::unwind::{dropped, shielded};
use keylane_rt::{Mutex, lock};

/// How far a waiter has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WaiterStage {
    /// In a lane, behind its head.
    Parked,
    /// In the line for a slot.
    Queued,
    /// It has its slot; its future may not have seen that yet.
    Granted,
    /// Its future was dropped.
    Left,
    /// The semaphore was closed while it was parked. It is in no lane any more.
    ClosedParked,
    /// The semaphore was closed while it was queued. If it is the head of a lane, that lane still
    /// has to be moved on.
    ClosedQueued,
}

/// Shared by the future that waits and by the lane or the line in which it waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Each exchange and each load is the partner of the exchange before it, so that a future that
    /// sees `Granted` also sees what was done before.
    stage: AtomicU8,
    /// None of the user's code runs under this lock: a waker is cloned before, and woken or dropped
    /// after it is held.
    waker: Mutex<Option<Waker>>,
    /// How many waiters of the lane have left and are still in it. Kept by the first parked waiter
    /// alone, and 0 in all others. Relaxed: it is used under the lock of the lane's shard only.
    left_in_lane: AtomicUsize,
}

impl WaiterStage {
    const ALL: [Self; 6] = [
        Self::Parked,
        Self::Queued,
        Self::Granted,
        Self::Left,
        Self::ClosedParked,
        Self::ClosedQueued,
    ];
}

impl Waiter {
    pub(super) fn new(stage: WaiterStage) -> Self {
        Self {
            stage: AtomicU8::new(stage as u8),
            waker: Mutex::default(),
            left_in_lane: AtomicUsize::new(0),
        }
    }

    pub(super) fn stage(&self) -> WaiterStage {
        WaiterStage::ALL[usize::from(self.stage.load(Ordering::Acquire))]
    }

    /// Goes from one stage to another. False: another thread has changed the stage before.
    pub(super) fn shift(&self, from: WaiterStage, to: WaiterStage) -> bool {
        self.stage
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Under the lock of the lane's shard.
    pub(super) fn left_in_lane(&self) -> usize {
        self.left_in_lane.load(Ordering::Relaxed)
    }

    /// Under the lock of the lane's shard.
    pub(super) fn set_left_in_lane(&self, left: usize) {
        self.left_in_lane.store(left, Ordering::Relaxed);
    }

    /// Not under a lock: the waker is the user's, and may panic or call the semaphore.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            shielded(|| waker.wake());
        }
    }

    /// Drops the waker, because the future is about to leave. A waker may own a whole task, and a
    /// waiter that has left may be dropped under a lock, where no code of the user may run.
    pub(super) fn drop_waker(&self) {
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

    /// Ready once it is neither parked nor queued.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<WaiterStage> {
        let mut stage = self.stage();
        if matches!(stage, WaiterStage::Parked | WaiterStage::Queued) {
            self.register(cx.waker());
            // It may have been granted before the waker was registered.
            stage = self.stage();
        }
        match stage {
            WaiterStage::Parked | WaiterStage::Queued => Poll::Pending,
            ended => Poll::Ready(ended),
        }
    }
}
