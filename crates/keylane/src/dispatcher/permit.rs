//! Room for a message that does not exist yet.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::Instant;
use keylane_rt::{SemaphorePermit, oneshot};

use super::handle::Dispatcher;
use super::receipt::Receipt;
use super::when::When;
use crate::engine::Reply;
use crate::error::{ReserveError, TrySendError};
use crate::types::Of;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Waits for room for one message, before there is a message.
    ///
    /// # Errors
    ///
    /// [`ReserveError`] when the dispatcher takes no more messages.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, it takes no room, and its place in the queue
    /// for room is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use keylane::Dispatcher;
    /// # let orders = Dispatcher::builder(|order: &u64| order % 10)
    /// #     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
    /// # let mut source = vec![1, 2, 3];
    /// // Take a message from its source only when there is room for it.
    /// let permit = orders.reserve().await?;
    /// if let Some(order) = source.pop() {
    ///     permit.send(order)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, K, M, O, E>, ReserveError> {
        let admitted = self.wait_for_rates().await;
        admitted.map_err(|_| ReserveError)?;
        match self.engine.room.messages.acquire().await {
            Ok(count) => Ok(Permit {
                dispatcher: self,
                count,
            }),
            Err(_) => Err(ReserveError),
        }
    }
}

/// Room for one message in the capacity of a dispatcher. Dropping it unused gives the room back.
///
/// The capacity in bytes and that of a lane depend on the message, so [`send`](Self::send) may
/// still refuse it.
#[must_use = "a permit that is not used gives its room back"]
pub struct Permit<'a, K, M, O, E> {
    dispatcher: &'a Dispatcher<K, M, O, E>,
    count: SemaphorePermit<'a>,
}

impl<K, M, O, E> Permit<'_, K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Puts the message into the lane of its key, without waiting.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Closed`] if the dispatcher was closed after the room was taken,
    /// [`TrySendError::LaneFull`] if the lane of the key is full, [`TrySendError::Full`] or
    /// [`TrySendError::TooLarge`] for the capacity in bytes. Each gives the message back.
    ///
    /// # Panics
    ///
    /// If the key, size or priority function or the key's `Hash` panics. Nothing is accepted, and
    /// the room goes back.
    pub fn send(self, message: M) -> Result<(), TrySendError<M>> {
        self.put(message, None, None).map(drop)
    }

    /// Like [`send`](Self::send), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn submit(self, message: M) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let (reply, answer) = oneshot::channel();
        let dispatcher = self.dispatcher;
        let hash = self.put(message, Some(reply), None)?;
        Ok(dispatcher.receipt(answer, hash))
    }

    /// Like [`send`](Self::send), for a message that may not start before a [time](When).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`TrySendError::TooFar`] for a time that the clock cannot
    /// count.
    ///
    /// # Panics
    ///
    /// As [`send`](Self::send).
    pub fn send_when(self, message: M, when: impl Into<When>) -> Result<(), TrySendError<M>> {
        match self.dispatcher.start_of(when) {
            Some(at) => self.put(message, None, Some(at)).map(drop),
            None => Err(TrySendError::TooFar(message)),
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
    pub fn submit_when(
        self,
        message: M,
        when: impl Into<When>,
    ) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let Some(at) = self.dispatcher.start_of(when) else {
            return Err(TrySendError::TooFar(message));
        };
        let (reply, answer) = oneshot::channel();
        let dispatcher = self.dispatcher;
        let hash = self.put(message, Some(reply), Some(at))?;
        Ok(dispatcher.receipt(answer, hash))
    }

    /// Returns the hash of the key.
    fn put(
        self,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: Option<Instant>,
    ) -> Result<u64, TrySendError<M>> {
        let (key, hash) = (self.dispatcher.address.locate)(&message);
        match self
            .dispatcher
            .try_fill(self.count, key.as_ref(), hash, &message)
        {
            Ok(room) => {
                let put = self
                    .dispatcher
                    .put(room, key, hash, message, reply, not_before);
                put.map(|()| hash).map_err(TrySendError::Closed)
            }
            Err(refusal) => Err(refusal.of(message)),
        }
    }
}

impl<K, M, O, E> fmt::Debug for Permit<'_, K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
