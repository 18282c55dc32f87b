//! The future of a permit, with its place in the lane of a key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use keylane_rt::Arc;
use keylane_rt::unwind::Quiet;

use super::error::Closed;
use super::permit::KeyedPermit;
use super::shared::Claim;
use super::waiter::{Waiter, WaiterStage};

/// The future of [`Reservation::acquire`](super::Reservation::acquire): waits for a
/// [`KeyedPermit`].
///
/// The place in the lane was taken by that call and not by the first poll: two `Acquire`s of one
/// key get their permits in the order of the calls, whichever is polled first.
///
/// An `Acquire` that has its permit and is neither polled nor dropped blocks its key, as an
/// unpolled guard of a lock does.
///
/// # Errors
///
/// [`Closed`] once the semaphore is closed.
///
/// # Panics
///
/// If it is polled again after it was ready with a permit.
///
/// # Cancel safety
///
/// If the future is dropped, it leaves its lane at once, and those behind it move up in their
/// order. A permit that it has already goes to the next one.
#[must_use = "an `Acquire` that is dropped loses its place"]
pub struct Acquire<K: Eq + Clone> {
    /// `None` once this has become a permit, and then there is nothing to give back.
    claim: Option<Claim<K>>,
    /// `None`: it has its permit.
    waiter: Option<Arc<Waiter>>,
}

impl<K: Eq + Clone> Acquire<K> {
    pub(super) fn new(claim: Option<Claim<K>>, waiter: Option<Arc<Waiter>>) -> Self {
        Self { claim, waiter }
    }

    /// Returns the key. `None` if there is none, or if this has become a permit.
    pub fn key(&self) -> Option<&K> {
        self.claim.as_ref()?.key.as_ref().map(Quiet::get)
    }

    /// Returns the permit, if there is no need to wait for it.
    ///
    /// # Errors
    ///
    /// The future itself, in its place, if it has to wait or the semaphore is closed.
    #[inline]
    pub fn try_into_permit(mut self) -> Result<KeyedPermit<K>, Self> {
        if !self.is_granted() {
            return Err(self);
        }
        match self.claim.take() {
            Some(claim) => Ok(KeyedPermit::new(claim)),
            None => Err(self),
        }
    }

    fn is_granted(&self) -> bool {
        let waiter = self.waiter.as_ref();
        waiter.is_none_or(|waiter| waiter.stage() == WaiterStage::Granted)
    }

    /// Leaves the lane, and gives the key back.
    pub(super) fn cancel(mut self) -> Option<K> {
        self.leave()?.key.map(Quiet::into_inner)
    }

    /// Gives back what it has: its place in the lane, or the permit, and the slot of the capacity.
    fn leave(&mut self) -> Option<Claim<K>> {
        let claim = self.claim.take()?;
        let Claim { shared, key, hash } = &claim;
        match self.waiter.take() {
            None => shared.release(key.as_ref(), *hash, true),
            Some(waiter) => shared.leave(key.as_ref(), *hash, &waiter),
        }
        Some(claim)
    }
}

// It holds nothing that is pinned.
impl<K: Eq + Clone> Unpin for Acquire<K> {}

impl<K: Eq + Clone> Future for Acquire<K> {
    type Output = Result<KeyedPermit<K>, Closed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = match &self.waiter {
            None => WaiterStage::Granted,
            Some(waiter) => ready!(waiter.poll(cx)),
        };
        if stage != WaiterStage::Granted {
            // The claim stays: `Drop` gives back what it still has.
            return Poll::Ready(Err(Closed));
        }
        self.waiter = None;
        let claim = self.claim.take();
        let claim = claim.expect("an `Acquire` must not be polled after it is ready");
        Poll::Ready(Ok(KeyedPermit::new(claim)))
    }
}

impl<K: Eq + Clone> Drop for Acquire<K> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl<K: Eq + Clone> fmt::Debug for Acquire<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("granted", &self.is_granted())
            .finish_non_exhaustive()
    }
}
