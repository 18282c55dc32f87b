//! Capacity for one waiter, taken before its key is known.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane_rt::Arc;
use keylane_rt::unwind::Quiet;

use super::acquire::Acquire;
use super::error::{AcquireError, Closed};
use super::shared::{Claim, Joined, Shared};
use super::slots::SlotAnswer;
use super::waiter::{Waiter, WaiterStage};

/// One slot of a [`KeyedSemaphore`](super::KeyedSemaphore)'s capacity: its holder can take a place
/// in a lane without waiting.
///
/// If it is dropped unused, the slot goes to the next caller that waits for capacity.
#[must_use = "a reservation that is not used keeps others waiting"]
pub struct Reservation<K>(Option<Arc<Shared<K>>>);

impl<K> Reservation<K> {
    /// The caller has taken the slot.
    #[inline]
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self(Some(shared))
    }
}

impl<K: Eq + Clone> Reservation<K> {
    /// Takes a place in the lane of this key now, behind all places that were taken before.
    ///
    /// # Errors
    ///
    /// [`AcquireError::LaneFull`] if as many as the lane capacity wait for the key already, and
    /// [`AcquireError::Closed`] if the semaphore is closed. Both give the key back and free the
    /// reservation.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics. No place is taken, and the reservation is free.
    #[inline]
    pub fn acquire(self, key: K) -> Result<Acquire<K>, AcquireError<K>> {
        let Some(shared) = &self.0 else {
            return Err(AcquireError::Closed(key));
        };
        let key = Quiet::new(key);
        let hash = (shared.hash)(key.get());
        let waiter = match shared.join(Some(&key), hash) {
            Joined::Granted => None,
            Joined::Waiting(waiter) => Some(waiter),
            Joined::LaneFull => return Err(AcquireError::LaneFull(key.into_inner())),
            Joined::Closed => return Err(AcquireError::Closed(key.into_inner())),
        };
        Ok(self.into_acquire(Some(key), hash, waiter))
    }

    /// Asks for a permit without a key: it waits for one of `concurrency`, but behind no other
    /// work.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the semaphore is closed.
    pub fn acquire_keyless(self) -> Result<Acquire<K>, Closed> {
        let shared = self.0.as_ref().ok_or(Closed)?;
        let waiter = match shared.join(None, 0) {
            Joined::Granted => None,
            Joined::Waiting(waiter) => Some(waiter),
            Joined::LaneFull | Joined::Closed => return Err(Closed),
        };
        Ok(self.into_acquire(None, 0, waiter))
    }

    fn into_acquire(
        mut self,
        key: Option<Quiet<K>>,
        hash: u64,
        waiter: Option<Arc<Waiter>>,
    ) -> Acquire<K> {
        // From here on the `Acquire` owns the slot, and this value gives nothing back.
        let shared = self.0.take();
        Acquire::new(shared.map(|shared| Claim { shared, key, hash }), waiter)
    }
}

impl<K> Drop for Reservation<K> {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.capacity.give_back();
        }
    }
}

impl<K> fmt::Debug for Reservation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// The future of [`KeyedSemaphore::reserve`](super::KeyedSemaphore::reserve): waits for capacity.
///
/// Slots are given out in the order of the first polls. If the future is dropped, it leaves the
/// line, and a slot that it was given already goes to the next one.
#[must_use = "futures do nothing unless polled"]
pub struct Reserve<K> {
    shared: Arc<Shared<K>>,
    waiter: Option<Arc<Waiter>>,
}

impl<K> Reserve<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self {
            shared,
            waiter: None,
        }
    }

    fn reservation(&self) -> Reservation<K> {
        Reservation::new(Arc::clone(&self.shared))
    }
}

// It holds nothing that is pinned.
impl<K> Unpin for Reserve<K> {}

impl<K> Future for Reserve<K> {
    type Output = Result<Reservation<K>, Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiter.is_none() {
            let waiter = Arc::new(Waiter::new(WaiterStage::Queued));
            match self.shared.capacity.take_or_wait(&waiter) {
                SlotAnswer::Now => return Poll::Ready(Ok(self.reservation())),
                SlotAnswer::Later => self.waiter = Some(waiter),
                SlotAnswer::Left | SlotAnswer::Closed => return Poll::Ready(Err(Closed)),
            }
        }
        let stage = match &self.waiter {
            Some(waiter) => ready!(waiter.poll(cx)),
            None => return Poll::Pending,
        };
        self.waiter = None;
        Poll::Ready(match stage {
            WaiterStage::Granted => Ok(self.reservation()),
            _ => Err(Closed),
        })
    }
}

impl<K> Drop for Reserve<K> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        waiter.drop_waker();
        let left = self.shared.capacity.leave(&waiter);
        if !left && waiter.stage() == WaiterStage::Granted {
            self.shared.capacity.give_back();
        }
    }
}

impl<K> fmt::Debug for Reserve<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}
