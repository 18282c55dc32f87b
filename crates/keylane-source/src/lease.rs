//! Lanes that are exclusive across processes: what the engine asks of leases.
//!
//! A dispatcher that is `leased_by` leases starts the messages of a key
//! only while it holds the lease of that key. The engine decides when a lease is needed and when not
//! any more; the leases know where they are kept. The crate `keylane-leases` has them in memory and in
//! stores that processes share; implement [`LaneLeases`] for anything else.
//!
//! ```text
//!  a message is next ── held? ── yes ──────────────────────────► its handler starts
//!                         │ no                                      │ lost: it is dropped
//!                         ▼                                         ▼
//!                      acquire ── granted ── the lane goes on     the message waits, at the
//!                         │                                       head of its lane
//!                         └── its lane has gone meanwhile: dropped
//!
//!  the lane has gone, and no message came while the lease lingered ──► dropped, and so released
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;
use tokio::time::Instant;

use crate::BoxError;

/// Leases on keys, for the lanes of a dispatcher: see `leased_by`.
///
/// # Examples
///
/// Leases of a process that is the only one, for a test of what comes above:
///
/// ```
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use keylane::lease::{LaneLease, LaneLeases, LaneLeaseError};
/// use keylane::Dispatcher;
/// use tokio::time::Instant;
///
/// struct Alone;
///
/// #[keylane::async_trait]
/// impl LaneLeases<u64> for Alone {
///     async fn acquire(&self, _: &u64) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
///         Ok(Box::new(Token(1)))
///     }
///
///     fn losses(&self) -> u64 {
///         0
///     }
/// }
///
/// struct Token(u64);
///
/// impl LaneLease for Token {
///     fn token(&self) -> u64 {
///         self.0
///     }
///
///     fn held_until(&self) -> Option<Instant> {
///         Some(Instant::now() + Duration::from_secs(3_600))
///     }
///
///     fn poll_lost(&mut self, _: &mut Context<'_>) -> Poll<()> {
///         Poll::Pending
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|user: &u64| *user)
///     .leased_by(Alone)
///     .spawn(|ctx: keylane::Context<u64>, _: u64| async move {
///         Ok::<_, std::io::Error>(ctx.lease_token())
///     })?;
/// assert_eq!(orders.submit(7).await?.await?, Some(1));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait LaneLeases<K>: Send + Sync + 'static {
    /// Acquires the lease of a key. Waits for as long as another holder has it.
    ///
    /// It is not called for a key whose lease this dispatcher holds or waits for.
    ///
    /// # Errors
    ///
    /// [`LaneLeaseError`]: after `Failed` it is called again, with growing waits of up to two seconds;
    /// after `Closed` it is not.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when no message of the key waits any more. A lease that was granted to it
    /// must not stay held then.
    async fn acquire(&self, key: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError>;

    /// How many leases were lost so far before the time that their
    /// [`held_until`](LaneLease::held_until) has said: counted after `held_until` says that it is lost.
    /// While the number stays the same, that time is not asked for again before it is over.
    ///
    /// It is called for each message and each poll, so it is to be cheap; and it does not panic.
    fn losses(&self) -> u64;

    /// How long a lease is kept at least while no message of its key is here: 1 second unless set
    /// otherwise. It is given up before twice that time is over.
    fn linger(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether [`acquire`](Self::acquire) waits because there are as many leases as there may be.
    /// A dispatcher that waits for one then gives the leases of its keys without messages up at once;
    /// one that asks for nothing keeps its own until they have [lingered](Self::linger). `false` unless
    /// set otherwise.
    fn is_full(&self) -> bool {
        false
    }
}

#[async_trait]
impl<K, T> LaneLeases<K> for Arc<T>
where
    K: Send + Sync,
    T: LaneLeases<K> + ?Sized,
{
    async fn acquire(&self, key: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        (**self).acquire(key).await
    }

    fn losses(&self) -> u64 {
        (**self).losses()
    }

    fn linger(&self) -> Duration {
        (**self).linger()
    }

    fn is_full(&self) -> bool {
        (**self).is_full()
    }
}

/// The lease of one key, held until it is lost or dropped. Dropped, it is released.
///
/// The engine calls these functions under a lock, so they return at once, and do not panic.
pub trait LaneLease: Send + 'static {
    /// The fencing token: higher than those of all grants of the key before.
    fn token(&self) -> u64;

    /// Until when it is held, as far as is known now, by the clock of its holder. `None`: it is lost.
    ///
    /// A renewal makes it later, and nothing makes it earlier but a loss, which
    /// [`losses`](LaneLeases::losses) counts. Once its time is over it stays lost.
    fn held_until(&self) -> Option<Instant>;

    /// Ready once it is lost. The last task that has asked is woken then.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Why there is no lease.
#[derive(Error, Debug)]
pub enum LaneLeaseError {
    /// None will be granted any more. Messages wait until the dispatcher ends, and are handed back
    /// then.
    #[error("the leases are closed")]
    Closed,
    /// Not this time: the store of the leases cannot be reached, for example.
    #[error(transparent)]
    Failed(#[from] BoxError),
}
