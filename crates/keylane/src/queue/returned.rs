//! A message that comes back.

use std::fmt;
use std::ops::Deref;

use super::item::{Item, Turn};
use crate::rt::Arc;

/// A message that left the queue without being completed: taken back with
/// [`Queue::take_parked`](super::Queue::take_parked), or given up on with
/// [`Lease::give_up`](super::Lease::give_up). It dereferences to the message.
pub struct Returned<K, M> {
    pub(super) item: Arc<Item<K, M>>,
    attempts: u32,
}

impl<K, M> Returned<K, M> {
    pub(super) fn new(turn: Turn<K, M>) -> Self {
        Self {
            item: turn.item,
            attempts: turn.attempts,
        }
    }

    /// Its key.
    pub fn key(&self) -> &K {
        self.item.key.get()
    }

    /// The message.
    pub fn message(&self) -> &M {
        self.item.message.get()
    }

    /// How often it was leased. Above 0, it may have had an effect.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The message itself.
    ///
    /// # Errors
    ///
    /// Gives `self` back while a worker still holds a lease of this message that has run out: it may
    /// be reading it.
    pub fn into_message(self) -> Result<M, Self> {
        let attempts = self.attempts;
        match Arc::try_unwrap(self.item) {
            Ok(item) => Ok(item.message.into_inner()),
            Err(item) => Err(Self { item, attempts }),
        }
    }
}

impl<K, M> Deref for Returned<K, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.message()
    }
}

impl<K, M> fmt::Debug for Returned<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the key nor the message: they are the user's.
        f.debug_struct("Returned")
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
