//! The handle of a keyed semaphore.

use std::fmt;
use std::hash::Hash;

use keylane_rt::Arc;

use super::error::{AcquireError, Closed, TryAcquireError, TryReserveError};
use super::permit::KeyedPermit;
use super::reservation::{Reservation, Reserve};
use super::shared::Shared;

/// A semaphore with one permit per key at a time, granted in the order of the requests. Different
/// keys hold permits at the same time.
///
/// Use it for work that stays in the caller's own future, such as a request in a service. Nothing
/// is spawned, the work needs to be neither `Send` nor `'static`, and no runtime is needed. Work
/// that can be sent to another task is better sent to a `Dispatcher` of `keylane`, which
/// also retries, batches and observes it.
///
/// Handles are cheap to clone, and all clones are the same semaphore.
///
/// # Examples
///
/// ```
/// use keylane_semaphore::KeyedSemaphore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = KeyedSemaphore::builder().concurrency(256).build()?;
///
/// let alice = accounts.acquire("alice").await?;
/// // The key has one permit. Other keys have theirs.
/// assert!(accounts.try_acquire("alice").is_err());
/// assert!(accounts.try_acquire("bob").is_ok());
///
/// // The order is that of these calls, whichever future is polled first.
/// let next = accounts.try_reserve()?.acquire("alice")?;
/// let last = accounts.try_reserve()?.acquire("alice")?;
/// drop(alice);
/// let permit = next.await?;
/// drop(permit);
/// last.await?;
/// assert_eq!(accounts.lanes(), 0);
/// # Ok(())
/// # }
/// ```
pub struct KeyedSemaphore<K> {
    pub(super) shared: Arc<Shared<K>>,
}

impl<K> KeyedSemaphore<K> {
    /// Waits for capacity, in the order of the first polls.
    ///
    /// # Errors
    ///
    /// [`Closed`] once the semaphore is closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it takes no capacity and loses its place among those that wait.
    pub fn reserve(&self) -> Reserve<K> {
        Reserve::new(Arc::clone(&self.shared))
    }

    /// Takes capacity if some is free and no other caller waits for it.
    ///
    /// # Errors
    ///
    /// [`TryReserveError::Full`] if the caller would have to wait, and `Closed` once the semaphore
    /// is closed.
    #[inline]
    pub fn try_reserve(&self) -> Result<Reservation<K>, TryReserveError> {
        let reserved = self.shared.capacity.try_take();
        // Made before the check, so that a slot that was taken goes back when it is dropped.
        let reservation = reserved.then(|| Reservation::new(Arc::clone(&self.shared)));
        if self.shared.is_closed() {
            return Err(TryReserveError::Closed);
        }
        reservation.ok_or(TryReserveError::Full)
    }

    /// Returns whether the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns how much of the capacity is used: reservations, waiters and permits.
    pub fn len(&self) -> usize {
        self.shared.capacity.in_use()
    }

    /// Returns whether there is no reservation, no waiter and no permit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many permits are held. `None` if the concurrency is not below the capacity,
    /// because permits are not counted then.
    pub fn permits_in_use(&self) -> Option<usize> {
        self.shared.permits_in_use()
    }
}

impl<K: Hash + Eq + Clone> KeyedSemaphore<K> {
    /// Waits for capacity, then for the key, then for one of `concurrency`.
    ///
    /// The place in the lane of the key is taken when there is capacity. Callers that must fix the
    /// order earlier use [`reserve`](Self::reserve) and [`Reservation::acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireError::LaneFull`] if as many as the lane capacity wait for the key already, and
    /// [`AcquireError::Closed`] once the semaphore is closed. Both give the key back.
    ///
    /// # Panics
    ///
    /// When polled, if the key's `Hash`, `Eq` or `Clone` panics. It then holds no capacity.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it loses its place in the line for capacity or in its lane, and
    /// those behind it move up. No permit is lost.
    pub async fn acquire(&self, key: K) -> Result<KeyedPermit<K>, AcquireError<K>> {
        let Ok(reservation) = self.reserve().await else {
            return Err(AcquireError::Closed(key));
        };
        let mut acquire = reservation.acquire(key)?;
        match (&mut acquire).await {
            Ok(permit) => Ok(permit),
            Err(Closed) => {
                let key = acquire.cancel();
                Err(AcquireError::Closed(
                    key.expect("an `Acquire` keeps its key until it is a permit"),
                ))
            }
        }
    }

    /// Takes the permit of a key if the key and one of `concurrency` are free now.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] if the caller would have to wait, and `Closed` once the
    /// semaphore is closed. Both give the key back.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics. It then holds no capacity.
    pub fn try_acquire(&self, key: K) -> Result<KeyedPermit<K>, TryAcquireError<K>> {
        let reservation = match self.try_reserve() {
            Ok(reservation) => reservation,
            Err(TryReserveError::Full) => return Err(TryAcquireError::NoPermits(key)),
            Err(TryReserveError::Closed) => return Err(TryAcquireError::Closed(key)),
        };
        let acquire = match reservation.acquire(key) {
            Ok(acquire) => acquire,
            Err(AcquireError::LaneFull(key)) => return Err(TryAcquireError::NoPermits(key)),
            Err(AcquireError::Closed(key)) => return Err(TryAcquireError::Closed(key)),
        };
        acquire.try_into_permit().map_err(|acquire| {
            let key = acquire.cancel();
            TryAcquireError::NoPermits(
                key.expect("an `Acquire` keeps its key until it is a permit"),
            )
        })
    }

    /// Returns how many keys have a permit or a waiter: a sum over the shards, not over the keys.
    pub fn lanes(&self) -> usize {
        self.shared.lanes()
    }

    /// Closes the semaphore: fails everything that waits, and all calls from now on. Permits stay
    /// valid until they are dropped.
    pub fn close(&self) {
        self.shared.close();
    }
}

/// With the defaults of its [`builder`](KeyedSemaphore::builder).
impl<K: Hash + Eq + Clone> Default for KeyedSemaphore<K> {
    fn default() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }
}

impl<K> Clone for KeyedSemaphore<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for KeyedSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedSemaphore")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
