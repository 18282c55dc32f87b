//! Sending: with or without a wait for room, a receipt, a time of its own.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::Instant;
use keylane_rt::oneshot;

use super::handle::Dispatcher;
use super::receipt::{Answer, Receipt};
use super::when::When;
use crate::engine::Reply;
use crate::error::{SendError, TrySendError};
use crate::types::Of;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Waits for room, then puts the message into the lane of its key.
    ///
    /// With `Ok` the message is *accepted*: it will settle exactly once. Messages that one task
    /// sends one after the other are accepted in that order.
    ///
    /// # From inside a handler
    ///
    /// The message that a handler works on keeps its room until the handler has returned. A handler
    /// that waits here for room in its own dispatcher therefore waits for other messages to settle.
    /// If every handler in flight does so at full capacity, or the message goes to a key whose full
    /// lane waits for this very handler, none of them ever returns. Use
    /// [`try_send`](Self::try_send) and decide what to do without room, or send from another task:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::OnceLock;
    /// use keylane::Dispatcher;
    ///
    /// static STEPS: OnceLock<Dispatcher<u64, u64, (), std::io::Error>> = OnceLock::new();
    ///
    /// let steps = Dispatcher::builder(|step: &u64| step % 10)
    ///     .spawn(|step: u64| async move {
    ///         if let (Some(next), Some(steps)) = (step.checked_sub(1), STEPS.get()) {
    ///             // The handler returns and gives its room back, with or without room for this.
    ///             tokio::spawn(steps.send(next));
    ///         }
    ///         Ok(())
    ///     })?;
    /// let steps = STEPS.get_or_init(|| steps);
    /// steps.send(3).await?;
    /// # while steps.stats().done < 4 { tokio::task::yield_now().await }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] after `drain`, `close` or `abort`, or when the runtime is gone;
    /// [`SendError::LaneFull`] if the lane is full and the policy is to reject;
    /// [`SendError::TooLarge`] for a message above the capacity in bytes. Each gives it back.
    ///
    /// # Panics
    ///
    /// If the key, size or priority function or the key's `Hash` panics. Nothing is accepted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing is accepted, no room is taken, and the
    /// message is dropped with it. To keep the message, call [`reserve`](Self::reserve) first.
    pub async fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.post(message, None, || None).await.map(drop)
    }

    /// Like [`send`](Self::send), and returns a receipt that resolves with the handler's answer.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn submit(&self, message: M) -> Result<Receipt<M, O, E>, SendError<M>> {
        let (reply, answer) = oneshot::channel();
        let hash = self.post(message, Some(reply), || None).await?;
        Ok(self.receipt(answer, hash))
    }

    /// Like [`send`](Self::send), for a message that may not start before a [time](When): a
    /// `Duration` from now, or a `tokio::time::Instant`.
    ///
    /// The message is accepted now and takes up room. The setting
    /// [`delayed`](crate::Builder::delayed) decides what the messages behind it do.
    /// [`drain`](Self::drain) waits for it.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooFar`] for a time that the clock cannot count.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_when(&self, message: M, when: impl Into<When>) -> Result<(), SendError<M>> {
        match self.start_of(when) {
            Some(at) => self.post(message, None, || Some(at)).await.map(drop),
            None => Err(SendError::TooFar(message)),
        }
    }

    /// Like [`send_when`](Self::send_when), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`send_when`](Self::send_when).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn submit_when(
        &self,
        message: M,
        when: impl Into<When>,
    ) -> Result<Receipt<M, O, E>, SendError<M>> {
        let Some(at) = self.start_of(when) else {
            return Err(SendError::TooFar(message));
        };
        let (reply, answer) = oneshot::channel();
        let hash = self.post(message, Some(reply), || Some(at)).await?;
        Ok(self.receipt(answer, hash))
    }

    /// Accepts the message if there is room at once.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`TrySendError::Full`] at capacity. Each gives it back.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.try_post(message, None, None).map(drop)
    }

    /// Like [`try_send`](Self::try_send), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_submit(&self, message: M) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let (reply, answer) = oneshot::channel();
        let hash = self.try_post(message, Some(reply), None)?;
        Ok(self.receipt(answer, hash))
    }

    /// Like [`send_when`](Self::send_when), if there is room at once.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send), and [`TrySendError::TooFar`] for a time that the clock
    /// cannot count.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_send_when(&self, message: M, when: impl Into<When>) -> Result<(), TrySendError<M>> {
        match self.start_of(when) {
            Some(at) => self.try_post(message, None, Some(at)).map(drop),
            None => Err(TrySendError::TooFar(message)),
        }
    }

    /// Like [`try_send_when`](Self::try_send_when), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`try_send_when`](Self::try_send_when).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn try_submit_when(
        &self,
        message: M,
        when: impl Into<When>,
    ) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let Some(at) = self.start_of(when) else {
            return Err(TrySendError::TooFar(message));
        };
        let (reply, answer) = oneshot::channel();
        let hash = self.try_post(message, Some(reply), Some(at))?;
        Ok(self.receipt(answer, hash))
    }

    /// When a message starts at the earliest that is sent now.
    pub(super) fn start_of(&self, when: impl Into<When>) -> Option<Instant> {
        when.into().counted_from(|| self.engine.clocks.now())
    }

    /// The receipt of a message whose key has this hash.
    pub(super) fn receipt(&self, answer: Answer<M, O, E>, hash: u64) -> Receipt<M, O, E> {
        let behind = self.engine.settings.settles_in_turn().then_some(hash);
        Receipt {
            answer,
            engine: self.engine.id(),
            behind: behind.unwrap_or(0),
        }
    }

    /// Returns the hash of the key.
    ///
    /// `not_before` is a function because a future that waits for room is smaller without it.
    async fn post(
        &self,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: impl FnOnce() -> Option<Instant>,
    ) -> Result<u64, SendError<M>> {
        let (key, hash) = (self.address.locate)(&message);
        match self.room(key.as_ref(), hash, &message).await {
            Ok(room) => self
                .put(room, key, hash, message, reply, not_before())
                .map(|()| hash)
                .map_err(SendError::Closed),
            Err(refusal) => Err(refusal.of_waiting(message)),
        }
    }

    /// As [`post`](Self::post).
    fn try_post(
        &self,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: Option<Instant>,
    ) -> Result<u64, TrySendError<M>> {
        let (key, hash) = (self.address.locate)(&message);
        match self.try_room(key.as_ref(), hash, &message) {
            Ok(room) => self
                .put(room, key, hash, message, reply, not_before)
                .map(|()| hash)
                .map_err(TrySendError::Closed),
            Err(refusal) => Err(refusal.of(message)),
        }
    }
}
