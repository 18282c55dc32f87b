//! The right of one worker to one message, for a time.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use keylane_rt::Arc;

use super::delivery::KeyedMessage;
use super::error::LeaseError;
use super::expiry_queue::LeaseId;
use super::lease_table::{Grant, Settlement};
use super::returned::Returned;
use super::shared::Shared;

/// The time at which a message is delivered again after a worker has failed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivery {
    /// At once: it can be leased after the other keys that are ready.
    Now,
    /// After this time; more than a year counts as a year. Until then no message of its key is
    /// leased.
    After(Duration),
    /// Never: it settles as given up, and the next message of its key can be leased.
    Never,
}

/// The right of one worker to one message, until the worker ends the lease or it expires.
///
/// While a message is leased, no other message of its key is. The lease dereferences to the
/// message.
///
/// When a lease is *dropped*, on purpose or because its worker panicked or was cancelled, the
/// message is ready again at once, still as the head of its key. When a lease *expires*, the same
/// happens by itself. Its worker can still read the message, but [`complete`](Self::complete),
/// [`fail`](Self::fail), [`give_up`](Self::give_up) and [`extend`](Self::extend) are refused, since
/// another worker may have the message now.
///
/// A message is lent and not moved: the queue must be able to give it to the next worker while a
/// late one still reads it. So workers see `&M`, and `M` is `Sync` and need not be `Clone`. A
/// worker clones what it must own; an `Arc` as message makes that cheap.
///
/// # Examples
///
/// A long piece of work keeps its message by extending the lease:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use keylane_queue::Queue;
///
/// let uploads = Queue::builder(|upload: &(u64, String)| upload.0).spawn()?;
/// uploads.enqueue((7, "a large file".to_owned())).await?;
///
/// let lease = uploads.dequeue().await.expect("it is open");
/// assert_eq!((lease.1.as_str(), lease.attempt()), ("a large file", 1));
/// lease.extend(Duration::from_secs(300))?;
/// assert!(lease.time_left() > Duration::from_secs(200));
/// lease.complete()?;
/// # Ok(())
/// # }
/// ```
///
/// A lease is ended once, and the compiler checks it:
///
/// ```compile_fail,E0382
/// # async fn worker(queue: keylane_queue::Queue<u64, String>) {
/// let lease = queue.dequeue().await.unwrap();
/// lease.complete();
/// lease.complete();
/// # }
/// ```
#[must_use = "a lease that is dropped puts its message back"]
pub struct Lease<K, M> {
    shared: Arc<Shared<K, M>>,
    item: Arc<KeyedMessage<K, M>>,
    id: LeaseId,
    attempt: u32,
    /// The worker has ended it: its drop does nothing.
    has_ended: bool,
}

impl<K, M> Lease<K, M> {
    pub(super) fn new(shared: Arc<Shared<K, M>>, grant: Grant<Arc<KeyedMessage<K, M>>>) -> Self {
        Self {
            shared,
            item: grant.item,
            id: grant.id,
            attempt: grant.attempt,
            has_ended: false,
        }
    }

    /// Returns the message.
    pub fn message(&self) -> &M {
        self.item.message.get()
    }

    /// Returns the key of the message.
    pub fn key(&self) -> &K {
        self.item.key.get()
    }

    /// Returns how many times the message was leased, this time included.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the number of this lease. Each lease of a queue has a larger number than all before
    /// it, whatever their keys. Tokens begin at 1 in each queue.
    ///
    /// A token *fences* what a worker writes elsewhere: a store that remembers the largest token
    /// that it has seen for a key, and refuses smaller ones, is safe from workers whose lease has
    /// expired. (M. Kleppmann, "How to do distributed locking", 2016.)
    pub fn token(&self) -> u64 {
        self.id.token
    }

    /// Returns when the lease expires, by the clock of the queue's runtime, or `None` if it has
    /// expired.
    pub fn expires_at(&self) -> Option<tokio::time::Instant> {
        let (expires_at, _) = self.shared.expiry(self.id)?;
        Some(tokio::time::Instant::from_std(expires_at))
    }

    /// Returns how long the lease lasts from now; zero if it has expired.
    pub fn time_left(&self) -> Duration {
        let expiry = self.shared.expiry(self.id);
        expiry.map_or(Duration::ZERO, |(_, time_left)| time_left)
    }

    /// Extends the lease: it expires in `time` from now, unless it would expire later than that
    /// anyway.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has expired. [`LeaseError::Zero`] if the time is zero
    /// and [`LeaseError::TooLong`] if it is longer than a year; then the lease is as it was.
    pub fn extend(&self, time: Duration) -> Result<(), LeaseError> {
        self.shared.extend(self.id, time)
    }
}

impl<K: Eq + Clone, M> Lease<K, M> {
    /// Completes the message: it settles, and the next message of its key can be leased.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has expired. Then this does not settle the message.
    pub fn complete(mut self) -> Result<(), LeaseError> {
        self.has_ended = true;
        let returned = self.shared.settle(self.id, Settlement::Completed);
        returned.map(drop)
    }

    /// Reports that the worker has failed with the message, and when the queue delivers it again.
    ///
    /// The queue counts the attempts and leaves it to the worker when to give up. A worker that
    /// never looks at [`attempt`](Self::attempt) gets a message that always fails again and again.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has expired. Then the message has come back already.
    pub fn fail(mut self, redelivery: Redelivery) -> Result<(), LeaseError> {
        let delay = match redelivery {
            Redelivery::Now => Duration::ZERO,
            Redelivery::After(time) => time,
            Redelivery::Never => return self.give_up().map(drop),
        };
        self.has_ended = true;
        self.shared.delay(self.id, delay)
    }

    /// Gives up on the message and returns it, like [`Redelivery::Never`] for a worker that still
    /// needs the message.
    ///
    /// The next message of its key can be leased from here on. A worker that must store the message
    /// before that, for example as a dead letter, does so before this call.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has expired. Then this does not settle the message.
    pub fn give_up(mut self) -> Result<Returned<K, M>, LeaseError> {
        self.has_ended = true;
        self.shared.settle(self.id, Settlement::GivenUp)
    }
}

impl<K, M> Deref for Lease<K, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.message()
    }
}

impl<K, M> Drop for Lease<K, M> {
    fn drop(&mut self) {
        // Does nothing if the lease has expired: its id is not in the table any more.
        if !self.has_ended {
            self.shared.release(self.id);
        }
    }
}

impl<K, M> fmt::Debug for Lease<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the key nor the message: they are the user's.
        f.debug_struct("Lease")
            .field("token", &self.id.token)
            .field("attempt", &self.attempt)
            .field("time_left", &self.time_left())
            .finish_non_exhaustive()
    }
}
