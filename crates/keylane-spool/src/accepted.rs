//! The result of a push that does not wait.

use std::fmt;

use super::core::Waiter;
use super::error::PushError;
use super::message::Message;

/// A message that the spool has taken with [`try_push`](super::Spool::try_push).
///
/// Under [`Persist::Each`](super::Persist::Each) it is on its way to the disk, and only
/// [`stored`](Self::stored) confirms that it is there. Under the other policies it is accepted, and
/// this value can be dropped.
#[must_use = "under `Persist::Each` only `stored` says that the message is on the disk"]
pub struct Accepted(Option<Waiter>);

impl Accepted {
    pub(super) fn now() -> Self {
        Self(None)
    }

    pub(super) fn later(waiter: Waiter) -> Self {
        Self(Some(waiter))
    }

    /// Waits until the message is as safe as the policy promises: under
    /// [`Persist::Each`](super::Persist::Each) on the disk, otherwise at once.
    ///
    /// # Errors
    ///
    /// [`PushError::Disk`] if the message could not be stored, [`PushError::Closed`] if the spool
    /// ended earlier because the disk failed. Both give the message back.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message is still stored and delivered if that works, and its
    /// outcome is not known.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_spool::{SinkError, Spool, Spooled};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let sink = |_: Vec<Spooled>| async move { Ok::<(), SinkError>(()) };
    /// let spool = Spool::builder(sink).dir(dir.path()).open().await?;
    /// // Both are stored with one fsync.
    /// let first = spool.try_push("user-7", "first")?;
    /// let second = spool.try_push("user-7", "second")?;
    /// first.stored().await?;
    /// second.stored().await?;
    /// # spool.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stored(self) -> Result<(), PushError> {
        match self.0 {
            None => Ok(()),
            // Every arriving message gets an answer, at the latest at the end.
            Some(waiter) => waiter
                .await
                .unwrap_or_else(|_| Err(PushError::Closed(Message::new("", "")))),
        }
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").finish_non_exhaustive()
    }
}
