//! The stream of events of one subscriber.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use keylane_rt::Arc;

use super::Event;
use super::feed::{Feed, Found, Shared};

/// The events of a dispatcher, from the call of [`events`](crate::Dispatcher::events) on.
///
/// Each subscriber has its own queue, bounded by [`event_capacity`](crate::Builder::event_capacity)
/// (1,024 by default). The engine never waits for a slow subscriber: when its queue is full, the
/// oldest event is dropped for the new one. An [`Overflowed`](Event::Overflowed) pushes nothing out
/// and is dropped itself. [`lost`](Self::lost) counts the dropped events.
///
/// It is a [`Stream`] as well. It keeps neither the dispatcher nor its intake open.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::watching::Event;
/// use keylane::{Dispatcher, OnExhausted};
///
/// let ledger = Dispatcher::builder(|entry: &i64| entry.abs() % 10)
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(|entry: i64| async move { if entry < 0 { Err("overdrawn") } else { Ok(entry) } })?;
/// let mut events = ledger.events();
///
/// ledger.send(-3).await?;
/// match events.recv().await {
///     Some(Event::Halted { key, why, .. }) => println!("account {key} is halted: {why}"),
///     other => panic!("{other:?}"),
/// }
///
/// ledger.drain().await;
/// assert_eq!(events.recv().await, None);
/// # Ok(())
/// # }
/// ```
pub struct Events<K> {
    number: u64,
    shared: Arc<Shared<K>>,
}

impl<K> Feed<K> {
    /// What happens from now on.
    pub(crate) fn events(&self) -> Events<K> {
        let (number, shared) = self.subscribe();
        Events { number, shared }
    }
}

impl<K: Clone> Events<K> {
    /// Waits for the next event; `None` once the dispatcher has ended and all was read.
    ///
    /// # Panics
    ///
    /// If the key's `Clone` panics, with several subscribers. The event is gone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, no event is taken and none is lost.
    pub async fn recv(&mut self) -> Option<Event<K>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the next event, if there is one already.
    ///
    /// `None` does not say whether the dispatcher has ended; [`recv`](Self::recv) does.
    ///
    /// # Panics
    ///
    /// As [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Option<Event<K>> {
        match self.shared.take(self.number) {
            Found::Event(event) => Some(Arc::unwrap_or_clone(event)),
            Found::Nothing | Found::Ended => None,
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            match self.shared.take(self.number) {
                Found::Event(event) => return Poll::Ready(Some(Arc::unwrap_or_clone(event))),
                Found::Ended => return Poll::Ready(None),
                // The waker is cloned here, because that is the user's and may panic.
                Found::Nothing if self.shared.wait(self.number, cx.waker().clone()) => {
                    return Poll::Pending;
                }
                Found::Nothing => {}
            }
        }
    }
}

impl<K> Events<K> {
    /// Returns how many events this subscriber has lost so far because its queue was full.
    pub fn lost(&self) -> u64 {
        self.shared.lost(self.number)
    }
}

impl<K: Clone> Stream for Events<K> {
    type Item = Event<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.get_mut().poll_recv(cx)
    }
}

impl<K> Drop for Events<K> {
    fn drop(&mut self) {
        self.shared.leave(self.number);
    }
}

impl<K> fmt::Debug for Events<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor errors: they are the user's.
        f.debug_struct("Events")
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}
