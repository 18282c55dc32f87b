//! A message that left the queue without being completed.

use std::fmt;
use std::ops::Deref;

use keylane_rt::Arc;

use super::delivery::{Delivery, KeyedMessage};

/// A message that left the queue without being completed: taken back with
/// [`Queue::take_parked`](super::Queue::take_parked), or given up on with
/// [`Lease::give_up`](super::Lease::give_up). It dereferences to the message.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane_queue::Queue;
///
/// let orders = Queue::builder(|order: &(u64, String)| order.0).spawn()?;
/// orders.enqueue((7, "tea".to_owned())).await?;
/// orders.close();
/// for order in orders.take_parked() {
///     assert_eq!((*order.key(), order.attempts()), (7, 0));
///     assert_eq!(order.into_message().ok(), Some((7, "tea".to_owned())));
/// }
/// assert_eq!(orders.drain().await.handed_back, 1);
/// # Ok(())
/// # }
/// ```
pub struct Returned<K, M> {
    item: Arc<KeyedMessage<K, M>>,
    attempts: u32,
}

impl<K, M> Returned<K, M> {
    pub(super) fn new(delivery: Delivery<Arc<KeyedMessage<K, M>>>) -> Self {
        Self {
            item: delivery.item,
            attempts: delivery.attempts,
        }
    }

    /// Returns the key of the message.
    pub fn key(&self) -> &K {
        self.item.key.get()
    }

    /// Returns the message.
    pub fn message(&self) -> &M {
        self.item.message.get()
    }

    /// Returns how many times the message was leased. Above 0, it may have had an effect.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the message, owned.
    ///
    /// # Errors
    ///
    /// Gives `self` back while a worker still holds an expired lease of this message, and may be
    /// reading it.
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
