//! Leases for the lanes of a dispatcher.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use keylane_source::BoxError;
use keylane_source::lease::{LaneHolder, LaneLease, LaneLeaseError, LaneLeases};
use tokio::task::unconstrained;
use tokio::time::Instant;

use crate::error::AcquireError;
use crate::lease::Lease;
use crate::leases::{Leases, check_ttl};

/// How long a lease stays while no message of its key is here.
const LINGER: Duration = Duration::from_secs(1);

/// Makes the lanes of a dispatcher exclusive across processes: [`Leases::lanes`] creates it, and
/// `Builder::leased_by` takes it.
///
/// The dispatcher acquires the lease of a key before it handles a message of the key. The lease is
/// renewed while it is needed, and released when the key has had no message for a while.
/// `Builder::leased_by` describes how lanes wait, and what happens when a lease is lost.
///
/// Dispatchers that handle the same keys for the same purpose share a store and a prefix; others
/// have another [prefix](Self::prefix), or another store.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane::Dispatcher;
/// use keylane_leases::{Leases, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One that processes share: `SqlLeases` of `keylane-sql`, for example.
/// let leases = Leases::open(Arc::new(MemoryStore::new()))?;
/// let lanes = leases
///     .lanes(Duration::from_secs(10), |user: &u64| user.to_be_bytes())?
///     .prefix("orders/")
///     .linger(Duration::from_millis(500));
///
/// let orders = Dispatcher::builder(|order: &u64| order % 100)
///     .leased_by(lanes)
///     .spawn(|ctx: keylane::Context<u64>, order: u64| async move {
///         println!("order {order}, under token {:?}", ctx.lease_token());
///         Ok::<_, std::io::Error>(())
///     })?;
/// orders.submit(4_207).await?.await?;
/// # orders.drain().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "give them to `Builder::leased_by`"]
pub struct Lanes<F> {
    leases: Leases,
    ttl: Duration,
    key: F,
    prefix: Bytes,
    linger: Duration,
}

impl Leases {
    /// Returns the leases of lanes, for `Builder::leased_by`: see [`Lanes`].
    ///
    /// `ttl` is the time to live of each lease, from 100 milliseconds to a day. It must outlast
    /// whatever blocks the runtime, such as a handler that computes: otherwise the lease runs out,
    /// and the attempt is dropped. `key` converts a
    /// key to bytes: always the same bytes, in all processes, and other bytes for another key.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Ttl`] for another time to live.
    pub fn lanes<K, F, B>(&self, ttl: Duration, key: F) -> Result<Lanes<F>, AcquireError>
    where
        F: Fn(&K) -> B,
        B: AsRef<[u8]>,
    {
        check_ttl(ttl)?;
        Ok(Lanes {
            leases: self.clone(),
            ttl,
            key,
            prefix: Bytes::new(),
            linger: LINGER,
        })
    }
}

impl<F> Lanes<F> {
    /// Sets the prefix of the keys of the leases: empty by default.
    pub fn prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a lease stays at least while no message of its key is here, and at most twice
    /// that long: 1 second by default, so that a key whose messages arrive one by one does not cost
    /// a call to the store for each. With zero the lease is released within some ten milliseconds.
    ///
    /// A lease that is lost is remembered until then too, with a copy of its key: with an hour and
    /// a store that loses leases each second, that is some thousand copies.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

#[async_trait]
impl<K, F, B> LaneLeases<K> for Lanes<F>
where
    K: Sync + 'static,
    F: Fn(&K) -> B + Send + Sync + 'static,
    B: AsRef<[u8]>,
{
    async fn acquire(&self, key: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        let key = self.name(key);
        match self.leases.acquire(key, self.ttl).await {
            Ok(lease) => Ok(Box::new(Leased { lease, lost: None })),
            Err(AcquireError::Closed) => Err(LaneLeaseError::Closed),
            Err(error) => Err(LaneLeaseError::Failed(error.into())),
        }
    }

    fn losses(&self) -> u64 {
        self.leases.losses()
    }

    fn linger(&self) -> Duration {
        self.linger
    }

    fn is_full(&self) -> bool {
        self.leases.is_full()
    }

    async fn held_by(&self, key: &K) -> Result<Option<LaneHolder>, BoxError> {
        let holder = self.leases.held_by(self.name(key)).await?;
        Ok(holder.map(|it| {
            let holder = LaneHolder::new(it.owner, it.token.0, it.remaining);
            match it.ends_with_session {
                true => holder.of_session(),
                false => holder,
            }
        }))
    }
}

impl<F> Lanes<F> {
    /// Returns the name of the lease of a key.
    fn name<K, B: AsRef<[u8]>>(&self, key: &K) -> Bytes
    where
        F: Fn(&K) -> B,
    {
        let key = (self.key)(key);
        let key = key.as_ref();
        let mut name = BytesMut::with_capacity(self.prefix.len() + key.len());
        name.put_slice(&self.prefix);
        name.put_slice(key);
        name.freeze()
    }
}

impl<F> fmt::Debug for Lanes<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("leases", &self.leases)
            .field("ttl", &self.ttl)
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}

/// The lease of a lane.
struct Leased {
    lease: Lease,
    /// Created when an attempt under the lease waits for the first time: most never do.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl LaneLease for Leased {
    fn token(&self) -> u64 {
        self.lease.token().0
    }

    fn held_until(&self) -> Option<Instant> {
        self.lease.validity().held_until()
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lost = self.lost.get_or_insert_with(|| {
            let validity = self.lease.validity().clone();
            // The task of a handler polls it, and the budget of that task belongs to the handler.
            Box::pin(unconstrained(async move {
                validity.lost().await;
            }))
        });
        lost.as_mut().poll(cx)
    }
}
