//! A lease, as its holder has it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use crate::error::LeaseLost;
use crate::shared::Shared;
use crate::store::Token;
use crate::term::TermWatch;

/// The right to work on a key, for as long as it is held.
///
/// It is renewed in the background until it is dropped or [released](Self::release). It may be lost
/// before: when the store cannot be reached for long, or this process is paused. Then
/// [`run`](Self::run) drops what it runs, and [`lost`](Self::lost) returns.
///
/// A process that is paused cannot know that its time is over. What it was about to write when it
/// was paused, it writes when it goes on. So whatever must not be written twice is to be written
/// with the [token](Self::token), where a lower one is refused.
///
/// Drop it to release it: the store is told in the background, and the key is free a moment later.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    key: Bytes,
    token: Token,
    term: TermWatch,
    shared: Arc<Shared>,
}

impl Lease {
    /// As a lane of `keylane` asks for it.
    pub(crate) fn term(&self) -> &TermWatch {
        &self.term
    }

    pub(crate) fn new(key: Bytes, token: Token, term: TermWatch, shared: Arc<Shared>) -> Self {
        Self {
            key,
            token,
            term,
            shared,
        }
    }

    /// Of what.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// The fencing token: higher than those of all holders before.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether it is still held, by the clock of this process.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] says why not.
    pub fn check(&self) -> Result<(), LeaseLost> {
        self.term.check()
    }

    /// Waits until the lease is lost. This comes a tenth of the time to live before another process
    /// can have it, unless it was taken over.
    ///
    /// # Cancel safety
    ///
    /// The call only waits.
    pub async fn lost(&self) -> LeaseLost {
        self.term.lost().await
    }

    /// Runs a future under the lease. When the lease is lost, the future is dropped before this
    /// returns, and it is not polled once the time is over.
    ///
    /// The lease is still there afterwards, and is released when it is dropped.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if the future was dropped, or was never polled.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, so is the future.
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

    /// Releases the lease, and waits until the store has been told: another process can have the
    /// key when this returns.
    ///
    /// If the store cannot be told, the lease runs out there after its time to live.
    ///
    /// # Cancel safety
    ///
    /// The lease is released whether this is dropped or not.
    pub async fn release(self) {
        let told = self.shared.release(&self.key, self.token);
        drop(self);
        if let Some(told) = told {
            // Without an answer the leases have ended, and have released it before.
            let _ = told.await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.shared.release(&self.key, self.token);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.token)
            .field("state", &self.check())
            .finish_non_exhaustive()
    }
}
