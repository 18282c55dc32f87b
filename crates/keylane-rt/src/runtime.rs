//! The seam between the engine and what runs it: Tokio, or a model checker's Tokio.
//!
//! Everything in the engine that can be scheduled, blocked or woken comes from here, so that
//! `--cfg keylane_shuttle` explores the interleavings of this very code and not of a copy.

#[cfg(not(keylane_shuttle))]
mod imp {
    pub use std::sync::{Mutex, MutexGuard};
    pub use tokio::runtime::Handle;
    pub use tokio::sync::{
        OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot,
    };
    pub use tokio::task::coop::{consume_budget, unconstrained};
    pub use tokio::task::{AbortHandle, yield_now};

    /// By numbers that are hashes, or that this program gives out.
    pub type NumberMap<K, V> = std::collections::HashMap<K, V, crate::prehashed::BuildPrehashed>;
    pub use std::sync::atomic;
}

#[cfg(keylane_shuttle)]
mod imp {
    pub use shuttle::sync::{Mutex, MutexGuard};
    pub use shuttle_tokio::runtime::Handle;
    pub use shuttle_tokio::sync::{
        OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot,
    };
    pub use shuttle_tokio::task::{AbortHandle, yield_now};

    pub use shuttle_tokio::task::yield_now as consume_budget;
    pub use shuttle_tokio::task::yield_now as step_aside;
    /// There is no budget here.
    pub use std::convert::identity as unconstrained;

    /// What is walked in the order of the numbers, or a schedule could not be repeated.
    pub use std::collections::BTreeMap as NumberMap;

    /// Atomics that the scheduler may interrupt. `MAX` stages and relaxed reads are not modelled:
    /// every operation is sequentially consistent here.
    pub mod atomic {
        pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
        pub use std::sync::atomic::Ordering;
    }
}

pub use imp::*;
pub use std::sync::Arc;

use std::task::{Context, Poll};

/// A value in its own cache lines. A value that every message reads and that is hardly ever written
/// stays in the readers' caches while its neighbours are written; a value that many threads write
/// costs each of them as few lines as it has.
#[derive(Debug)]
#[repr(align(128))]
pub struct OwnLine<T>(pub T);

impl<T> std::ops::Deref for OwnLine<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Locks a mutex whose critical sections run none of the user's code.
///
/// A poisoned lock is entered all the same: the sections move owned values and leave the data
/// whole at every step.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Spends one operation of this task's budget. Returns `false` if none is left: let others run.
#[cfg(not(keylane_shuttle))]
#[inline]
pub fn spend_budget() -> bool {
    use std::task::Waker;
    if !tokio::task::coop::has_budget_remaining() {
        return false;
    }
    // With budget left the waker is not used.
    match tokio::task::coop::poll_proceed(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(spent) => {
            spent.made_progress();
            true
        }
        Poll::Pending => false,
    }
}

/// Returns whether there is budget left, which may be used up at any turn.
#[cfg(keylane_shuttle)]
#[inline]
pub fn spend_budget() -> bool {
    !one_in(4)
}

/// Throws a die of the scheduler, so that a schedule can be repeated.
#[cfg(keylane_shuttle)]
pub fn one_in(sides: u32) -> bool {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_ratio(1, sides)
}

/// Lets all others run first, whatever their priorities.
#[cfg(keylane_shuttle)]
pub fn linger() {
    shuttle::thread::yield_now();
}

/// Goes to the back of this worker's queue, where another worker can take this task over at once.
///
/// Tokio's own `yield_now` keeps a task out of reach of the other workers until its worker has
/// nothing else to poll.
#[cfg(not(keylane_shuttle))]
pub async fn step_aside() {
    let mut stepped = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Takes messages from the channel, up to `limit`. Ready with 0 once it is closed and empty.
#[cfg(not(keylane_shuttle))]
pub fn poll_recv_many<T>(
    channel: &mut mpsc::UnboundedReceiver<T>,
    cx: &mut Context<'_>,
    batch: &mut Vec<T>,
    limit: usize,
) -> Poll<usize> {
    channel.poll_recv_many(cx, batch, limit)
}

/// Takes messages from the channel, up to `limit`. Ready with 0 once it is closed and empty.
#[cfg(keylane_shuttle)]
pub fn poll_recv_many<T>(
    channel: &mut mpsc::UnboundedReceiver<T>,
    cx: &mut Context<'_>,
    batch: &mut Vec<T>,
    limit: usize,
) -> Poll<usize> {
    let Some(first) = std::task::ready!(channel.poll_recv(cx)) else {
        return Poll::Ready(0);
    };
    batch.push(first);
    let mut taken = 1;
    while taken < limit
        && let Ok(next) = channel.try_recv()
    {
        batch.push(next);
        taken += 1;
    }
    Poll::Ready(taken)
}

/// Returns the runtime of the caller.
#[cfg(not(keylane_shuttle))]
pub fn runtime() -> Option<Handle> {
    Handle::try_current().ok()
}

/// Returns the runtime of the model.
#[cfg(keylane_shuttle)]
pub fn runtime() -> Option<Handle> {
    Some(Handle::current())
}

/// Makes a call inside this runtime, with its clock and timers, on whichever thread.
#[cfg(not(keylane_shuttle))]
pub fn inside<R>(runtime: &Handle, call: impl FnOnce() -> R) -> R {
    let _entered = runtime.enter();
    call()
}

/// Makes a call: the model has one runtime, and one time.
#[cfg(keylane_shuttle)]
pub fn inside<R>(_: &Handle, call: impl FnOnce() -> R) -> R {
    call()
}

/// Returns how many tasks of this runtime can be polled at the same time.
#[cfg(not(keylane_shuttle))]
pub fn workers(runtime: &Handle) -> usize {
    runtime.metrics().num_workers().max(1)
}

/// Returns how many tasks can be polled at the same time.
#[cfg(keylane_shuttle)]
pub fn workers(_: &Handle) -> usize {
    2
}

/// Returns whether the runtime of the caller has timers: a typed error now is better than a panic
/// at the first retry.
#[cfg(not(keylane_shuttle))]
pub fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(std::time::Duration::ZERO))).is_ok()
}

/// Returns `true`: the model has timers.
#[cfg(keylane_shuttle)]
pub fn has_timers() -> bool {
    true
}

/// Starts the watchdog. The model has no time, and so no watchdog.
#[cfg(not(keylane_shuttle))]
pub fn spawn_watchdog(runtime: &Handle, watchdog: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(watchdog);
}

/// Wakes no task: the model has no time.
#[cfg(keylane_shuttle)]
#[derive(Debug)]
pub struct Nudge;

#[cfg(keylane_shuttle)]
impl Nudge {
    /// Wakes no task.
    pub fn every(_: &Handle, _: std::time::Duration, _: impl Fn() + Send + Sync + 'static) -> Self {
        Self
    }

    /// Waits for ever.
    pub async fn nudged(&self) {
        std::future::pending().await
    }
}

/// Starts no watchdog: the model has no time.
#[cfg(keylane_shuttle)]
pub fn spawn_watchdog(_: &Handle, watchdog: impl Future<Output = ()> + Send + 'static) {
    drop(watchdog);
}
