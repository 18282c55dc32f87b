//! The handle of a spool.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::accepted::Accepted;
use super::core::{Flush, Offer, Stage};
use super::error::{FlushError, PushError};
use super::message::{Message, Spooled};
use super::shared::Shared;
use super::stats::{HaltedKey, Stats};

/// Takes messages at the speed of memory, and delivers them to a sink in batches, in the order of
/// each key.
///
/// A handle is cheap to clone, and all clones are the same spool. When the last one is dropped, the
/// spool stops as with [`close`](Self::close) and a deadline of zero, without a report: with a
/// directory every undelivered message is stored, in the background; without one it is lost. Close
/// a spool to get the report.
///
/// # Threads and runtimes
///
/// A spool belongs to the runtime in which it was opened. Its methods can be called from any
/// thread, in any runtime or none; the async ones can be polled by any executor. If the runtime
/// goes, the spool stops as when the last handle is dropped.
///
/// # Examples
///
/// ```
/// use keylane_spool::{SinkError, Spool, Spooled};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spool = Spool::builder(|batch: Vec<Spooled>| async move {
///     for message in &batch {
///         println!("{}: {} bytes", message.id, message.payload.len());
///     }
///     Ok::<(), SinkError>(())
/// })
/// .open()
/// .await?;
///
/// spool.push("user-7", "{\"cents\":100}").await?;
/// spool.push("user-7", "{\"cents\":250}").await?;
/// assert_eq!(spool.close().await.delivered, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Spool {
    handle: Arc<Handle>,
}

/// The state that the clones share.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|core| core.stop());
    }
}

impl Spool {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Waits until there is room, takes the message, and waits until it is as safe as
    /// [`Persist`](super::Persist) promises.
    ///
    /// After `Ok` the message is *accepted*: it is delivered, or counted in the report. Messages of
    /// a key are delivered in the order in which they were accepted; pushes that wait for room get
    /// it in the order of their calls.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] at the limit under [`AtLimit::Reject`](super::AtLimit),
    /// [`PushError::TooLarge`], [`PushError::Disk`] under
    /// [`Persist::Each`](super::Persist::Each) if the message could not be stored, and
    /// [`PushError::Closed`]. All of them give the message back.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it waits for room, nothing is accepted, and the message is
    /// dropped with it. If it is dropped while it waits for the disk, the message is stored and
    /// delivered if that works, and its outcome is not known.
    pub async fn push(
        &self,
        key: impl Into<Bytes>,
        payload: impl Into<Bytes>,
    ) -> Result<(), PushError> {
        self.push_message(Message::new(key, payload)).await
    }

    /// Pushes a message with headers, like [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// The same as those of [`push`](Self::push).
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`push`](Self::push).
    ///
    /// # Examples
    ///
    /// ```
    /// # use keylane_spool::{Message, SinkError, Spool, Spooled};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let sink = |_: Vec<Spooled>| async move { Ok::<(), SinkError>(()) };
    /// # let spool = Spool::builder(sink).open().await?;
    /// let order = Message::new("user-7", "order").header("trace", "4bf92f35");
    /// spool.push_message(order).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn push_message(&self, message: Message) -> Result<(), PushError> {
        let shared = &self.handle.shared;
        let message = match shared.with(|core| core.offer(message, false)) {
            Offer::Accepted => {
                // A producer in a loop lets others run.
                tokio::task::coop::consume_budget().await;
                return Ok(());
            }
            Offer::Storing(waiter) => return Accepted::later(waiter).stored().await,
            Offer::Refused(error) => return Err(error),
            Offer::Busy(message) => message,
        };
        self.wait_for_room(message).await?.stored().await
    }

    async fn wait_for_room(&self, mut message: Message) -> Result<Accepted, PushError> {
        let shared = &self.handle.shared;
        let _waiting = Waiting::new(shared);
        let _first = shared.queue.lock().await;
        loop {
            match shared.with(|core| core.offer(message, true)) {
                Offer::Accepted => return Ok(Accepted::now()),
                Offer::Storing(waiter) => return Ok(Accepted::later(waiter)),
                Offer::Refused(error) => return Err(error),
                Offer::Busy(back) => message = back,
            }
            // Each release of room leaves a permit, so none since the offer is missed.
            shared.room.notified().await;
        }
    }

    /// Takes the message if there is room at once. Needs no runtime.
    ///
    /// The returned value confirms when the message is safe, and can be dropped unless the policy
    /// is [`Persist::Each`](super::Persist::Each).
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] at the limit, while pushes wait for room, and while the disk is behind;
    /// [`PushError::TooLarge`] and [`PushError::Closed`]. All of them give the message back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use keylane_spool::{SinkError, Spool, Spooled};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let sink = |_: Vec<Spooled>| async move { Ok::<(), SinkError>(()) };
    /// # let spool = Spool::builder(sink).open().await?;
    /// use keylane_spool::PushError;
    ///
    /// // From any thread, for example a callback that must not wait.
    /// match spool.try_push("user-7", "a click") {
    ///     Ok(_) => {}
    ///     Err(PushError::Full(_)) => println!("clicks are lost"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_push(
        &self,
        key: impl Into<Bytes>,
        payload: impl Into<Bytes>,
    ) -> Result<Accepted, PushError> {
        self.try_push_message(Message::new(key, payload))
    }

    /// Pushes a message with headers, like [`try_push`](Self::try_push).
    ///
    /// # Errors
    ///
    /// The same as those of [`try_push`](Self::try_push).
    pub fn try_push_message(&self, message: Message) -> Result<Accepted, PushError> {
        match self.handle.shared.with(|core| core.offer(message, false)) {
            Offer::Accepted => Ok(Accepted::now()),
            Offer::Storing(waiter) => Ok(Accepted::later(waiter)),
            Offer::Busy(message) => Err(PushError::Full(message)),
            Offer::Refused(error) => Err(error),
        }
    }

    /// Waits until all messages are delivered that were accepted, or recovered from the disk,
    /// before. Batches do not wait to fill meanwhile.
    ///
    /// Dead-lettered, dropped and skipped messages count as delivered. The flush waits while the
    /// sink fails.
    ///
    /// # Errors
    ///
    /// [`FlushError::Halted`] if all remaining messages wait for a decision, [`FlushError::Closed`]
    /// if the spool ended before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use keylane_spool::{SinkError, Spool, Spooled};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let sink = |_: Vec<Spooled>| async move { Ok::<(), SinkError>(()) };
    /// # let spool = Spool::builder(sink).open().await?;
    /// spool.push("user-7", "order").await?;
    /// spool.flush().await?;
    /// assert_eq!(spool.stats().delivered, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) -> Result<(), FlushError> {
        let shared = &self.handle.shared;
        let upto = shared.with(|core| core.flush());
        let state = |state| match state {
            Flush::Pending => None,
            Flush::Done => Some(Ok(())),
            Flush::Halted(keys) => Some(Err(FlushError::Halted { keys })),
            Flush::Ended => Some(Err(FlushError::Closed)),
        };
        shared.until(|core| state(core.flushed(upto))).await
    }

    /// Returns the current counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats::new(self.handle.shared.with(|core| core.view()))
    }

    /// Returns the keys that wait for a decision, in no order. There are none if
    /// [`OnRefused`](super::OnRefused) names dead letters.
    ///
    /// The call takes time in proportion to their number.
    ///
    /// # Examples
    ///
    /// ```
    /// # use keylane_spool::{SinkError, Spool, Spooled};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sink = |_: Vec<Spooled>| async move {
    ///     Err::<(), _>(SinkError::refused_batch("no such account"))
    /// };
    /// let spool = Spool::builder(sink).open().await?;
    /// spool.push("user-7", "order").await?;
    /// assert!(spool.flush().await.is_err());
    /// for halted in spool.halted() {
    ///     println!("{:?}: {}", halted.key, halted.reason);
    ///     spool.skip(&halted.key);
    /// }
    /// assert_eq!(spool.stats().skipped, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn halted(&self) -> Vec<HaltedKey> {
        self.handle.shared.with(|core| {
            let keys = core.halted_keys();
            keys.map(|(key, reason, waiting)| HaltedKey {
                key: key.clone(),
                reason: reason.to_string(),
                waiting,
            })
            .collect()
        })
    }

    /// Lets a halted key go on with the message that the sink has refused, which is written again.
    /// Returns false if the key is not [halted](Self::halted).
    pub fn resume(&self, key: impl AsRef<[u8]>) -> bool {
        self.handle.shared.with(|core| core.resume(key.as_ref()))
    }

    /// Lets a halted key go on without the message that the sink has refused, and returns that
    /// message. Returns `None` if the key is not [halted](Self::halted). After a crash right now
    /// the message may come back, behind later ones of its key ([`Stats::unconfirmed`]).
    pub fn skip(&self, key: impl AsRef<[u8]>) -> Option<Spooled> {
        self.handle.shared.with(|core| core.skip(key.as_ref()))
    }

    /// Returns whether the spool takes no more messages.
    pub fn is_closed(&self) -> bool {
        self.handle.shared.with(|core| core.stage()) > Stage::Open
    }
}

/// A push that waits for room: no later one overtakes it.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.with(|core| core.begin_wait());
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.with(|core| core.end_wait());
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool")
            .field("stats", &self.stats())
            .finish()
    }
}
