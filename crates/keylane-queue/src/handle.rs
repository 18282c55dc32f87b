//! The handle of a queue.

use std::fmt;
use std::hash::Hash;

use keylane_rt::{self as rt, Arc, TryAcquireError};

use super::error::{EnqueueError, TryDequeueError, TryEnqueueError};
use super::lease::Lease;
use super::report::Report;
use super::returned::Returned;
use super::shared::Shared;

/// A queue with a lane for each key, from which your own workers pull.
///
/// [`enqueue`](Self::enqueue) puts a message into the lane of its key. [`dequeue`](Self::dequeue)
/// leases the head of a lane that is not leased. So workers handle the messages of a key in order,
/// one at a time; there may be as many workers as you like, and a slow worker delays no key but its
/// own. Keys are served in the order in which they became ready.
///
/// Every step takes constant time, however many messages are parked behind leased keys. Only leases
/// that are extended beyond the usual time, and messages that are delayed, are kept sorted, which
/// costs the logarithm of their number.
///
/// A handle is cheap to clone, and all clones are the same queue. The messages are dropped with the
/// last handle and the last lease.
///
/// There is one thing that the queue does not guarantee: a worker whose lease has expired may still
/// be at work when the next one starts. Its `complete` is refused, but its effects elsewhere are
/// not undone. Fence them with [`Lease::token`], or make leases long enough.
///
/// # Threads and runtimes
///
/// A queue belongs to the runtime in which it was spawned. Its methods can be called from any
/// thread, in any runtime or none; the async ones can be polled by any executor.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_queue::Queue;
/// use keylane_queue::Redelivery;
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
///     .capacity(10_000)
///     .lease_time(Duration::from_secs(30))
///     .spawn()?;
///
/// let worker = tokio::spawn({
///     let orders = orders.clone();
///     async move {
///         while let Some(order) = orders.dequeue().await {
///             let ended = match charge(&order) {
///                 Ok(()) => order.complete(),
///                 Err(_) if order.attempt() < 3 => {
///                     order.fail(Redelivery::After(Duration::from_millis(1)))
///                 }
///                 Err(_) => order.fail(Redelivery::Never),
///             };
///             if let Err(error) = ended {
///                 println!("another worker may have it now: {error}");
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

impl<K, M> Queue<K, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    /// Waits until there is room, then puts the message into the lane of its key.
    ///
    /// With `Ok` the message is *accepted*, and will settle exactly once. Tasks that wait for room
    /// get it in the order in which they came.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::LaneFull`] if the lane has as many messages as
    /// [`lane_capacity`](super::QueueBuilder::lane_capacity), [`EnqueueError::Closed`] once the queue is
    /// closed. Both give the message back.
    ///
    /// # Panics
    ///
    /// If the key function or the key's `Hash`, `Eq` or `Clone` panics. Nothing is accepted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing is accepted, no room is taken, and the
    /// message is dropped with it.
    pub async fn enqueue(&self, message: M) -> Result<(), EnqueueError<M>> {
        let (key, hash) = (self.shared.locate)(&message);
        // A permit that is free costs less than one that is waited for, and taking it overtakes no
        // task: while tasks wait, permits go to them.
        let permit = match self.shared.room.try_acquire() {
            Ok(permit) => {
                rt::consume_budget().await;
                permit
            }
            Err(_) => match self.shared.room.acquire().await {
                Ok(permit) => permit,
                Err(_) => return Err(EnqueueError::Closed(message)),
            },
        };
        // No await from here on.
        let enqueued = self.shared.enqueue(key, hash, message);
        if enqueued.is_ok() {
            permit.forget();
        }
        enqueued
    }

    /// Accepts the message if there is room at once.
    ///
    /// # Errors
    ///
    /// [`TryEnqueueError::Full`] at the capacity, [`TryEnqueueError::LaneFull`] if the lane has as
    /// many messages as [`lane_capacity`](super::QueueBuilder::lane_capacity),
    /// [`TryEnqueueError::Closed`] once the queue is closed. All of them give the message back.
    ///
    /// # Panics
    ///
    /// If the key function or the key's `Hash`, `Eq` or `Clone` panics. Nothing is accepted.
    pub fn try_enqueue(&self, message: M) -> Result<(), TryEnqueueError<M>> {
        let (key, hash) = (self.shared.locate)(&message);
        match self.shared.room.try_acquire() {
            Ok(permit) => {
                self.shared.enqueue(key, hash, message)?;
                permit.forget();
                Ok(())
            }
            Err(TryAcquireError::NoPermits) => Err(TryEnqueueError::Full(message)),
            Err(TryAcquireError::Closed) => Err(TryEnqueueError::Closed(message)),
        }
    }

    /// Waits for a message whose key is not leased, and leases it.
    ///
    /// Returns `None` once the queue is closed and every message has settled. While any message is
    /// leased the caller waits, because that message may come back. Returns `None` also when the
    /// runtime of the queue is gone and no message is ready.
    ///
    /// Tasks that wait are served in the order in which they came.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing is leased: the message goes to the next
    /// task.
    pub async fn dequeue(&self) -> Option<Lease<K, M>> {
        loop {
            let permit = match self.shared.ready.try_acquire() {
                Ok(permit) => {
                    rt::consume_budget().await;
                    permit
                }
                Err(_) => match self.shared.ready.acquire().await {
                    Ok(permit) => permit,
                    Err(_) => return self.lease_after_finish(),
                },
            };
            // No await from here on: the permit becomes a lease, or is given back.
            permit.forget();
            if let Some(lease) = self.lease() {
                return Some(lease);
            }
        }
    }

    /// Leases a message if one can be leased at once.
    ///
    /// # Errors
    ///
    /// [`TryDequeueError::Empty`] if none can, [`TryDequeueError::Closed`] once the queue is closed
    /// and every message has settled.
    pub fn try_dequeue(&self) -> Result<Lease<K, M>, TryDequeueError> {
        // A lease expires by the clock, also if the driver has not yet seen it.
        for has_expired in [false, true] {
            match self.shared.ready.try_acquire() {
                Ok(permit) => {
                    permit.forget();
                    if let Some(lease) = self.lease() {
                        return Ok(lease);
                    }
                }
                Err(TryAcquireError::NoPermits) if !has_expired => while self.shared.expire() {},
                Err(TryAcquireError::NoPermits) => break,
                Err(TryAcquireError::Closed) => {
                    return self.lease_after_finish().ok_or(TryDequeueError::Closed);
                }
            }
        }
        Err(TryDequeueError::Empty)
    }

    /// Takes back all messages that are not leased, delayed ones included, and settles them as
    /// handed back. The messages of a key are in their order.
    ///
    /// Leased messages stay with their workers; if they come back to the queue, they can be taken
    /// then. A message whose `enqueue` is under way may be accepted right afterwards, and be leased
    /// although an earlier one of its key was taken back: [`close`](Self::close) first to avoid
    /// that.
    ///
    /// It takes time in proportion to the messages and the keys of the queue.
    pub fn take_parked(&self) -> Vec<Returned<K, M>> {
        self.shared.take_parked()
    }

    /// Closes the queue: it accepts no more messages. A task that waits in
    /// [`enqueue`](Self::enqueue) gets its message back. Messages in the queue can still be leased.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the queue, and waits until every accepted message has settled.
    ///
    /// It settles no message itself: workers must go on, or [`take_parked`](Self::take_parked) must
    /// take the messages that are not leased. If the runtime of the queue goes first, it returns,
    /// and the report counts the messages that have not settled.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the queue stays closed. `drain` can be called
    /// again.
    pub async fn drain(&self) -> Report {
        self.close();
        // It has no permits: it can only close.
        let _ = self.shared.finished.acquire().await;
        self.report()
    }

    /// Returns the counts of the messages until now.
    pub fn report(&self) -> Report {
        self.shared.report()
    }

    /// Returns how many messages are accepted and not settled: parked, ready, leased and delayed.
    pub fn len(&self) -> usize {
        usize::try_from(self.report().unsettled).unwrap_or(usize::MAX)
    }

    /// Returns how many messages are leased.
    pub fn leased(&self) -> usize {
        self.shared.leased()
    }

    /// Returns whether every accepted message has settled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the queue accepts no more messages.
    pub fn is_closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// Returns the maximum number of messages accepted and not settled, as set with
    /// [`QueueBuilder::capacity`](super::QueueBuilder::capacity).
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    fn lease(&self) -> Option<Lease<K, M>> {
        let grant = self.shared.lease()?;
        Some(Lease::new(Arc::clone(&self.shared), grant))
    }

    /// Leases without waiting, in a queue that no task may wait for any more. No driver makes ready
    /// what has expired, so this does.
    fn lease_after_finish(&self) -> Option<Lease<K, M>> {
        while self.shared.expire() {}
        self.lease()
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
