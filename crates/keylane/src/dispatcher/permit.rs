//! Room for a message that does not exist yet.

use std::fmt;
use std::hash::Hash;

use super::handle::Dispatcher;
use super::receipt::Receipt;
use crate::engine::Reply;
use crate::error::TrySendError;
use crate::rt::{SemaphorePermit, oneshot};
use crate::types::Of;

/// Room for one message in the capacity of a dispatcher. Dropped unused, the room goes back.
///
/// The capacity in bytes and the limit of a lane can only be asked once the message is there, so
/// [`send`](Self::send) may still say no.
#[must_use = "a permit that is not used gives its room back"]
pub struct Permit<'a, K, M, O, E> {
    pub(super) dispatcher: &'a Dispatcher<K, M, O, E>,
    pub(super) count: SemaphorePermit<'a>,
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
    pub fn send(self, message: M) -> Result<(), TrySendError<M>> {
        self.put(message, None)
    }

    /// Like [`send`](Self::send), and returns a receipt.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn submit(self, message: M) -> Result<Receipt<M, O, E>, TrySendError<M>> {
        let (reply, answer) = oneshot::channel();
        self.put(message, Some(reply))?;
        Ok(Receipt { answer })
    }

    fn put(self, message: M, reply: Option<Reply<Of<K, M, O, E>>>) -> Result<(), TrySendError<M>> {
        let (key, hash) = (self.dispatcher.address.locate)(&message);
        match self
            .dispatcher
            .try_fill(self.count, key.as_ref(), hash, &message)
        {
            Ok(room) => {
                let put = self.dispatcher.put(room, key, hash, message, reply, None);
                put.map_err(TrySendError::Closed)
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
