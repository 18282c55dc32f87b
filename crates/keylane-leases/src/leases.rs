//! The handle of leases.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, watch};

use crate::error::{AcquireError, OpenError, StoreError};
use crate::keeper::{Keeper, within};
use crate::lease::Lease;
use crate::metrics;
use crate::owner::random_bits;
use crate::settings::Settings;
use crate::shared::{Refusal, Shared};
use crate::store::{Holder, LeaseStore, Owner, Wish};
use crate::ttl::{LONGEST_TTL, SHORTEST_TTL};
use crate::watch::LeaseWatch;

/// The least pause. When a lease has just run out at the store, the next call comes soon, but not
/// in a busy loop.
const LEAST_PAUSE: Duration = Duration::from_millis(5);

/// Leases on keys: at most one holder of a key, across all processes that share the store.
///
/// One task renews all leases of a handle, in batches. A handle is cheap to clone, and all clones
/// are the same owner. Leases outlive the last handle; [`close`](Self::close) ends them.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_leases::error::AcquireError;
/// use keylane_leases::{Leases, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new());
/// let (here, there) = (Leases::open(store.clone())?, Leases::open(store)?);
/// let ttl = Duration::from_secs(10);
///
/// let lease = here.acquire("account-7", ttl).await?;
/// let refused = there.try_acquire("account-7", ttl).await;
/// assert!(matches!(refused, Err(AcquireError::Taken { .. })));
///
/// let first = lease.token();
/// lease.release().await;
/// assert!(there.acquire("account-7", ttl).await?.token() > first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leases {
    handle: Arc<LastHandle>,
}

/// Tells the task when the last handle is dropped.
struct LastHandle {
    shared: Arc<Shared>,
    /// It goes with the task.
    store: Weak<dyn LeaseStore>,
    settings: Settings,
    has_ended: watch::Receiver<()>,
    /// One call for people at a time: they share the store's connections with the renewals.
    looks: Semaphore,
}

impl Leases {
    /// Opens leases in this store, with the default settings.
    ///
    /// # Errors
    ///
    /// The same as those of [`open_with`](Self::open_with).
    pub fn open(store: Arc<dyn LeaseStore>) -> Result<Self, OpenError> {
        Self::open_with(store, Settings::new())
    }

    /// Opens leases in this store. The task that renews them runs in the runtime of the caller.
    ///
    /// # Errors
    ///
    /// [`OpenError`] outside a Tokio runtime, or in one without timers, and for a setting that is
    /// zero.
    pub fn open_with(store: Arc<dyn LeaseStore>, settings: Settings) -> Result<Self, OpenError> {
        settings.check()?;
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        // Without timers Tokio panics: an error now is better than a panic at the first lease.
        std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)))
            .map_err(|_| OpenError::NoTimers)?;
        let owner = settings.owner.as_deref().map(Owner::named);
        let shared = Shared::new(owner.unwrap_or_else(Owner::random), settings.most);
        let (shared, seen) = (Arc::new(shared), Arc::downgrade(&store));
        let (keeper, has_ended) = Keeper::new(Arc::clone(&shared), store, settings.clone());
        runtime.spawn(keeper.run());
        metrics::publish(&shared);
        Ok(Self {
            handle: Arc::new(LastHandle {
                shared,
                store: seen,
                settings,
                has_ended,
                looks: Semaphore::new(1),
            }),
        })
    }

    /// Acquires the lease of a key, for a time to live of 100 milliseconds to a day. Waits while
    /// another holder has it.
    ///
    /// The lease is renewed after a third of that time; or later, up to a half, if 10 seconds
    /// remain in which a failed renewal can be repeated. It must outlast whatever blocks the
    /// runtime, which renews it.
    ///
    /// If callers in several processes wait, any may be next. Of those in one process, one asks the
    /// store, and the others wait behind it.
    ///
    /// # Errors
    ///
    /// [`AcquireError`], but never `Taken` or `Full`.
    ///
    /// # Cancel safety
    ///
    /// If the call is dropped, a lease that was granted to it is released.
    pub async fn acquire(
        &self,
        key: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<Lease, AcquireError> {
        let wish = wish(key, ttl)?;
        let mut turn = None;
        loop {
            self.handle.shared.expire();
            let place = Arc::clone(&self.handle.shared.places).acquire_owned().await;
            let place = place.map_err(|_| AcquireError::Closed)?;
            let refusal = match self.ask(wish.clone(), place).await {
                Ok(lease) => return Ok(lease),
                Err(refusal) => refusal,
            };
            if turn.is_none() && refusal.is_taken() {
                let (mine, has_waited) = self.handle.shared.turns.turn(&wish.key).await;
                turn = Some(mine);
                if has_waited {
                    continue;
                }
            }
            match refusal {
                Refusal::Here { freed, .. } => freed.freed().await,
                Refusal::Error(AcquireError::Taken { remaining }) => {
                    let pause = self.pause().min(remaining).max(LEAST_PAUSE);
                    let mut has_ended = self.handle.has_ended.clone();
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = has_ended.changed() => {}
                    }
                }
                Refusal::Error(error) => return Err(error),
            }
        }
    }

    /// Acquires the lease of a key like [`acquire`](Self::acquire), but does not wait for another
    /// holder.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](Self::acquire).
    pub async fn try_acquire(
        &self,
        key: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<Lease, AcquireError> {
        let wish = wish(key, ttl)?;
        self.handle.shared.expire();
        let place = Arc::clone(&self.handle.shared.places).try_acquire_owned();
        let place = place.map_err(|error| match error {
            TryAcquireError::Closed => AcquireError::Closed,
            TryAcquireError::NoPermits => AcquireError::Full,
        })?;
        self.ask(wish, place)
            .await
            .map_err(|refusal| match refusal {
                Refusal::Here { remaining, .. } => AcquireError::Taken { remaining },
                Refusal::Error(error) => error,
            })
    }

    /// Returns whether there are as many leases as there may be, so that another one waits.
    pub(crate) fn is_full(&self) -> bool {
        let places = &self.handle.shared.places;
        places.available_permits() == 0 && !places.is_closed()
    }

    /// Returns how many leases were lost; each counts after its holder was notified.
    pub(crate) fn losses(&self) -> u64 {
        self.handle.shared.losses()
    }

    /// Returns the owner of the leases of this handle, for the store.
    pub fn owner(&self) -> &Owner {
        &self.handle.shared.owner
    }

    /// Returns a handle that shows what is held and what was lost, and does not keep the leases
    /// open.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch(Arc::clone(&self.handle.shared))
    }

    /// Asks the store who has the lease of a key: this owner, another one, or none. It is a call to
    /// the store for each call, for people who look, and not for decisions: the answer may be old
    /// when it comes. The calls of a handle and its clones take turns, so that they never hold up
    /// renewals.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails, does not answer within [`Settings::call_limit`], the wait
    /// for the turn included, or if the leases are closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use keylane_leases::{Leases, MemoryStore, Settings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let settings = Settings::new().owner("billing-3");
    /// let leases = Leases::open_with(Arc::new(MemoryStore::new()), settings)?;
    /// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
    ///
    /// let holder = leases.held_by("account-7").await?.expect("it is held");
    /// assert!(holder.owner.starts_with("billing-3-"));
    /// assert_eq!(holder.token, lease.token());
    /// assert_eq!(leases.held_by("account-8").await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn held_by(&self, key: impl Into<Bytes>) -> Result<Option<Holder>, StoreError> {
        let (key, handle) = (key.into(), &self.handle);
        let store = handle.store.upgrade();
        let store = store.filter(|_| !handle.shared.is_closed());
        let store = store.ok_or_else(|| StoreError::new("the leases are closed"))?;
        let call = async {
            // It is never closed.
            let _turn = handle.looks.acquire().await;
            store.held_by(&key).await
        };
        within(handle.settings.call_limit, call).await
    }

    /// Ends all leases, and grants no more. It notifies the holders, and then the store, in
    /// batches. It returns when the store has all releases, or could not be reached, with each call
    /// within [`Settings::call_limit`].
    ///
    /// Other processes can have the keys then. Work that goes on under a lease is notified, and
    /// [`Lease::run`] drops it at its next poll, but `close` does not wait for it: end it before.
    ///
    /// # Cancel safety
    ///
    /// Leases end even if the future is dropped.
    pub async fn close(&self) {
        self.handle.shared.close();
        let mut has_ended = self.handle.has_ended.clone();
        while has_ended.changed().await.is_ok() {}
    }

    async fn ask(&self, wish: Wish, place: OwnedSemaphorePermit) -> Result<Lease, Refusal> {
        let answer = self.handle.shared.ask(wish, place)?.await;
        // Without an answer the task has ended.
        let answer = answer.unwrap_or(Err(AcquireError::Closed));
        answer.map(Lease::new).map_err(Refusal::Error)
    }

    /// Returns three quarters to five quarters of the setting, so that waiters do not ask together.
    fn pause(&self) -> Duration {
        let share = random_bits() as f64 / u64::MAX as f64;
        let look_again = self.handle.settings.look_again.min(LONGEST_TTL);
        look_again.mul_f64(0.75 + share / 2.0)
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("owner", self.owner())
            .finish_non_exhaustive()
    }
}

fn wish(key: impl Into<Bytes>, ttl: Duration) -> Result<Wish, AcquireError> {
    check_ttl(ttl)?;
    Ok(Wish::new(key, ttl))
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), AcquireError> {
    match (SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        true => Ok(()),
        false => Err(AcquireError::Ttl(ttl)),
    }
}
