//! A lease, as its holder sees it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::LeaseLost;
use crate::shared::Grant;
use crate::store::Token;
use crate::validity::ValidityWatch;

/// The right to work on a key while the lease is held.
///
/// The lease is renewed in the background until it is dropped or [released](Self::release). It may
/// be lost earlier: when the store cannot be reached for long, or this process is paused. Then
/// [`run`](Self::run) drops its future, and [`lost`](Self::lost) returns.
///
/// A paused process cannot know that its lease has ended, and finishes the write that it was about
/// to make when it goes on. So if a value must not be written twice, write it with the
/// [token](Self::token), and refuse a lower one there.
///
/// Drop the lease to release it: the store gets the release in the background, and the key is free
/// a moment later.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    grant: Grant,
}

impl Lease {
    /// Returns the state of the lease, for a lane of `keylane`.
    pub(crate) fn validity(&self) -> &ValidityWatch {
        &self.grant.validity
    }

    pub(crate) fn new(grant: Grant) -> Self {
        Self { grant }
    }

    /// Returns the key of the lease.
    pub fn key(&self) -> &Bytes {
        &self.grant.key
    }

    /// Returns the fencing token: higher than those of all earlier holders.
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// Checks that the lease is still held, by the clock of this process.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] gives the reason.
    pub fn check(&self) -> Result<(), LeaseLost> {
        self.grant.validity.check()
    }

    /// Returns until when the lease is held, unless it is renewed before. `None` if it is lost or
    /// released.
    pub fn held_until(&self) -> Option<Instant> {
        self.grant.validity.held_until()
    }

    /// Waits until the lease is lost. It returns a tenth of the time to live before another process
    /// can have the lease, unless the lease was taken over.
    ///
    /// # Cancel safety
    ///
    /// The call only waits.
    pub async fn lost(&self) -> LeaseLost {
        self.grant.validity.lost().await
    }

    /// Runs a future under the lease. When the lease is lost, the future is dropped before this
    /// returns, and it is not polled after the lease has ended.
    ///
    /// The lease stays afterwards, and is released when it is dropped.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if the future was dropped, or was never polled.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped, so is the inner one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use keylane_leases::{Leases, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = Leases::open(Arc::new(MemoryStore::new()))?;
    /// # async fn settle_account(_: u64) -> u64 { 40 + 2 }
    /// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
    /// let token = lease.token();
    /// let balance = lease.run(async move { settle_account(token.0).await }).await?;
    /// assert_eq!(balance, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LeaseLost> {
        let mut lost = pin!(self.lost());
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(why) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(why));
            }
            // The report may come late: after a pause all timers are due at once.
            if let Err(why) = self.check() {
                return Poll::Ready(Err(why));
            }
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Ends the lease in this process, as a release does, and does not tell the store:
    /// [`check`](Self::check) returns [`LeaseLost::Released`] from now on. In the store it is kept
    /// until it is released or dropped.
    ///
    /// For a holder that has to write a last word before another process gets the key, or that
    /// frees the key in the same write.
    pub fn give_up(&self) {
        self.grant.give_up();
    }

    /// Releases the lease in the background, as a drop does: for a lease that others hold too, in
    /// an `Arc`.
    pub fn start_release(&self) {
        drop(self.grant.release());
    }

    /// Releases the lease, and waits until the store has the release: another process can have the
    /// key when this returns.
    ///
    /// The lease has ended here before the store is asked: [`check`](Self::check) returns
    /// [`LeaseLost::Released`]. If the store cannot be reached, this returns all the same. The
    /// release is tried again in the background until the lease has run out there, after its time
    /// to live.
    ///
    /// # Cancel safety
    ///
    /// The lease is released even if the future is dropped.
    pub async fn release(&self) {
        if let Some(told) = self.grant.release() {
            // Without an answer the leases have ended, and released it before.
            let _ = told.await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.token())
            .field("state", &self.check())
            .finish_non_exhaustive()
    }
}
