//! The handle of a queue.

use std::fmt;
use std::hash::Hash;

use super::builder::QueueBuilder;
use super::error::{EnqueueError, TryDequeueError, TryEnqueueError};
use super::lease::Lease;
use super::report::QueueReport;
use super::returned::Returned;
use super::shared::Shared;
use crate::rt::{self, Arc, TryAcquireError};

/// The lanes of a [`Dispatcher`](crate::Dispatcher) with a pull face, for workers of your own.
///
/// [`enqueue`](Self::enqueue) parks a message in the lane of its key, [`dequeue`](Self::dequeue)
/// leases the head of a key that nobody has leased. So messages of one key are worked on in order, one
/// at a time, by as many workers as you like, and a key whose worker is slow delays no other key.
/// Keys come out in the order in which they became ready.
///
/// Every step takes constant time, however many messages are parked behind busy keys. (Only leases
/// that were extended beyond the usual time, and messages that wait to be tried again, are kept
/// sorted: that costs the logarithm of their number.)
///
/// A handle is cheap to clone, and all clones are the same queue. When the last handle and the last
/// lease are gone, so are the messages.
///
/// What is not promised: a worker whose lease ran out may still be at work when the next one starts.
/// Its `complete` is refused; its effects elsewhere are not undone. Use [`Lease::token`] to fence
/// them, or leases that are long enough.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::{Again, Queue};
///
/// struct Order { user: u64, cents: u64 }
///
/// fn charge(order: &Order) -> Result<(), &'static str> {
///     if order.cents > 0 { Ok(()) } else { Err("nothing to charge") }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Queue::builder(|order: &Order| order.user)
///     .limit(10_000)
///     .lease_time(Duration::from_secs(30))
///     .spawn()?;
///
/// let worker = tokio::spawn({
///     let orders = orders.clone();
///     async move {
///         while let Some(order) = orders.dequeue().await {
///             let ended = match charge(&order) {
///                 Ok(()) => order.complete(),
///                 Err(_) if order.attempt() < 3 => order.fail(Again::After(Duration::from_millis(1))),
///                 Err(_) => order.fail(Again::Never),
///             };
///             if let Err(error) = ended {
///                 println!("somebody else has it now: {error}");
///             }
///         }
///     }
/// });
///
/// orders.enqueue(Order { user: 7, cents: 100 }).await?;
/// orders.enqueue(Order { user: 7, cents: 0 }).await?;
/// let report = orders.drain().await;
/// assert_eq!((report.completed, report.given_up), (1, 1));
/// worker.await?;
/// # Ok(())
/// # }
/// ```
pub struct Queue<K, M> {
    pub(super) shared: Arc<Shared<K, M>>,
}

impl Queue<(), ()> {
    /// Starts a queue. The function is called once per message, in the task that enqueues it, and
    /// returns an owned key.
    pub fn builder<K, M, F>(key: F) -> QueueBuilder<K, M, F>
    where
        F: Fn(&M) -> K + Send + Sync + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
    {
        QueueBuilder::new(key)
    }
}

impl<K, M> Queue<K, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    /// Waits until there is room, then puts the message into the lane of its key.
    ///
    /// With `Ok` the message is *accepted*: it settles exactly once. Senders that wait come in one by
    /// one, in the order in which they came.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the message back once the queue is closed.
    ///
    /// # Panics
    ///
    /// If the key function or the key's `Hash`, `Eq` or `Clone` panics. Nothing is accepted.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, nothing was accepted, no room is taken, and the message is dropped
    /// with the future.
    pub async fn enqueue(&self, message: M) -> Result<(), EnqueueError<M>> {
        let (key, hash) = (self.shared.locate)(&message);
        // Taking room that is there costs less than waiting for it, and overtakes nobody: while
        // senders wait, room goes to them.
        let room = match self.shared.room.try_acquire() {
            Ok(room) => {
                rt::consume_budget().await;
                room
            }
            Err(_) => match self.shared.room.acquire().await {
                Ok(room) => room,
                Err(_) => return Err(EnqueueError(message)),
            },
        };
        // No await from here on.
        let put = self.shared.put(key, hash, message);
        put.map_err(EnqueueError)?;
        room.forget();
        Ok(())
    }

    /// Accepts the message if there is room at once.
    ///
    /// # Errors
    ///
    /// [`TryEnqueueError::Full`] at the limit, [`TryEnqueueError::Closed`] once the queue is closed.
    /// Both give the message back.
    ///
    /// # Panics
    ///
    /// As [`enqueue`](Self::enqueue).
    pub fn try_enqueue(&self, message: M) -> Result<(), TryEnqueueError<M>> {
        let (key, hash) = (self.shared.locate)(&message);
        match self.shared.room.try_acquire() {
            Ok(room) => {
                let put = self.shared.put(key, hash, message);
                put.map_err(TryEnqueueError::Closed)?;
                room.forget();
                Ok(())
            }
            Err(TryAcquireError::NoPermits) => Err(TryEnqueueError::Full(message)),
            Err(TryAcquireError::Closed) => Err(TryEnqueueError::Closed(message)),
        }
    }

    /// Leases the next message whose key is not leased, and waits until there is one.
    ///
    /// `None` once the queue is closed and everything has settled: as long as anybody holds a lease,
    /// its message may come back. Also when the runtime of the queue is gone and nothing is ready.
    ///
    /// Those who wait are served in the order in which they came.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, nothing was leased. What it was about to get goes to the next.
    pub async fn dequeue(&self) -> Option<Lease<K, M>> {
        loop {
            let turn = match self.shared.turns.try_acquire() {
                #[cfg(keylane_mutant = "queue-cancel")]
                Ok(turn) => {
                    turn.forget();
                    rt::consume_budget().await;
                    return self.shared.grant();
                }
                #[cfg(not(keylane_mutant = "queue-cancel"))]
                Ok(turn) => {
                    rt::consume_budget().await;
                    turn
                }
                Err(_) => match self.shared.turns.acquire().await {
                    Ok(turn) => turn,
                    Err(_) => return self.last(),
                },
            };
            // No await from here on: a turn is a permit until it is a lease.
            turn.forget();
            if let Some(lease) = self.shared.grant() {
                return Some(lease);
            }
        }
    }

    /// Leases a message if one may be handed out now.
    ///
    /// # Errors
    ///
    /// [`TryDequeueError::Empty`] if none may, [`TryDequeueError::Closed`] once the queue is closed
    /// and everything has settled.
    pub fn try_dequeue(&self) -> Result<Lease<K, M>, TryDequeueError> {
        // Leases run out by the clock, also before the driver has seen it.
        for ticked in [false, true] {
            match self.shared.turns.try_acquire() {
                Ok(turn) => {
                    turn.forget();
                    if let Some(lease) = self.shared.grant() {
                        return Ok(lease);
                    }
                }
                Err(TryAcquireError::NoPermits) if !ticked => while self.shared.tick() {},
                Err(TryAcquireError::NoPermits) => break,
                Err(TryAcquireError::Closed) => return self.last().ok_or(TryDequeueError::Closed),
            }
        }
        Err(TryDequeueError::Empty)
    }

    /// Takes everything back that is not leased, also what waits to be tried again, key by key in
    /// order. It is settled as handed back.
    ///
    /// Messages that are leased stay with their workers; should they come back to the queue, they can
    /// be taken back then. A message whose `enqueue` is under way may come in right behind, and be leased
    /// although an earlier one of its key was taken back. It takes time in proportion to the messages and the keys that are there.
    pub fn take_parked(&self) -> Vec<Returned<K, M>> {
        self.shared.take_parked()
    }

    /// No more in. Who waits in `enqueue` gets the message back; what is parked can still be leased.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the queue, and waits until every accepted message has settled.
    ///
    /// Somebody must settle them: workers that go on, or [`take_parked`](Self::take_parked) for those
    /// that nobody has leased.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, the queue stays closed; it can be called again.
    pub async fn drain(&self) -> QueueReport {
        self.close();
        // It has no permits: it can only close.
        let _ = self.shared.end.acquire().await;
        self.report()
    }

    /// What has become of the messages until now.
    pub fn report(&self) -> QueueReport {
        self.shared.report()
    }

    /// Messages accepted and not settled: parked, leased, and waiting to be tried again.
    pub fn size(&self) -> usize {
        usize::try_from(self.report().unsettled).unwrap_or(usize::MAX)
    }

    /// Of these, how many are leased.
    pub fn leased(&self) -> usize {
        self.shared.leased()
    }

    /// Whether everything that was accepted has settled.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Whether no more messages are taken.
    pub fn is_closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// The most messages accepted and not settled.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// What can be had when nobody may wait any more.
    fn last(&self) -> Option<Lease<K, M>> {
        while self.shared.tick() {}
        self.shared.grant()
    }
}

impl<K, M> Clone for Queue<K, M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K, M> fmt::Debug for Queue<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("report", &self.shared.report())
            .field("leased", &self.shared.leased())
            .finish_non_exhaustive()
    }
}
