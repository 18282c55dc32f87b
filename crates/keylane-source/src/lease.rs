//! Lanes that are exclusive across processes: what the engine needs of leases.
//!
//! A dispatcher that is `leased_by` leases starts the messages of a key only while it holds the
//! lease of that key. The engine decides how long it needs a lease; the leases know where they are
//! kept. The crate `keylane-leases` has leases in memory and in stores that processes share;
//! implement [`LaneLeases`] for anything else.
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
use keylane_rt::text_in_debug;
use thiserror::Error;
use tokio::time::Instant;

use crate::BoxError;

/// Leases on keys, for the lanes of a dispatcher: see `leased_by`.
///
/// # Examples
///
/// Leases of a process that is the only one, for a test of the code above them:
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
    /// Acquires the lease of a key. Waits while another holder has it.
    ///
    /// It is not called for a key whose lease this dispatcher holds or waits for.
    ///
    /// # Errors
    ///
    /// [`LaneLeaseError`]: after `Failed` it is called again, with growing waits of up to two
    /// seconds; after `Closed` it is not.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when no message of the key waits any more. A lease that was granted to a
    /// dropped call must not stay held.
    async fn acquire(&self, key: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError>;

    /// Returns how many leases were lost before the time that their
    /// [`held_until`](LaneLease::held_until) had returned. A loss is counted after `held_until`
    /// says that the lease is lost. While the number stays the same, the engine does not ask for
    /// that time again before it is over.
    ///
    /// It is called for each message and each poll, so it must be cheap, and it must not panic.
    fn losses(&self) -> u64;

    /// Returns how long a lease is kept at least while no message of its key is here. The default
    /// is 1 second. The lease is given up before twice that time is over.
    fn linger(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns whether [`acquire`](Self::acquire) waits because the limit of leases is reached. A
    /// dispatcher that waits for a lease then gives up the leases of its keys without messages at
    /// once; a dispatcher that waits for none keeps its own until they have
    /// [lingered](Self::linger). The default is `false`.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns who has the lease of a key, in this process or in another one; `None` if none has
    /// it, or if these leases do not know, which is the default.
    ///
    /// It is asked for when an operator looks at the lane of the key, and nothing waits for it.
    ///
    /// # Errors
    ///
    /// Says why it is not known now. An operator sees the text: put no password and no key into it.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when it takes too long.
    async fn held_by(&self, key: &K) -> Result<Option<LaneHolder>, BoxError>
    where
        K: Sync,
    {
        let _ = key;
        Ok(None)
    }
}

/// Who has the lease of a key.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneHolder {
    /// The owner, as an operator recognises it.
    pub owner: String,
    /// The fencing token of its grant.
    pub token: u64,
    /// How long it lasts at most, unless it is renewed; `None` if that is not known.
    pub remaining: Option<Duration>,
    /// Whether all that is known is that it ends with a session of its process. Then `remaining`
    /// counts from the end of that process, and does not get less before.
    pub ends_with_session: bool,
}

impl LaneHolder {
    /// Creates a holder with this token, whose lease lasts this long at most.
    pub fn new(owner: impl Into<String>, token: u64, remaining: Option<Duration>) -> Self {
        Self {
            owner: owner.into(),
            token,
            remaining,
            ends_with_session: false,
        }
    }

    /// Says that it ends with a session of its process.
    #[must_use]
    pub fn of_session(mut self) -> Self {
        self.ends_with_session = true;
        self
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

    async fn held_by(&self, key: &K) -> Result<Option<LaneHolder>, BoxError> {
        (**self).held_by(key).await
    }
}

/// The lease of one key, held until it is lost or dropped. Dropping it releases it.
///
/// The engine calls these functions under a lock, so they return at once, and do not panic.
pub trait LaneLease: Send + 'static {
    /// Returns the fencing token. It is higher than the tokens of all earlier grants of the key.
    fn token(&self) -> u64;

    /// Returns until when the lease is held, as far as is known now, by the clock of its holder;
    /// `None` if the lease is lost.
    ///
    /// A renewal moves the time later. Only a loss moves it earlier, and
    /// [`losses`](LaneLeases::losses) counts that. Once the time is over, the lease stays lost.
    fn held_until(&self) -> Option<Instant>;

    /// Returns `Ready` once the lease is lost. The last task that has asked is woken then.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The reason why there is no lease.
#[derive(Error)]
pub enum LaneLeaseError {
    /// No lease is granted any more. Messages wait until the dispatcher ends, and are handed back
    /// then.
    #[error("the leases are closed")]
    Closed,
    /// The lease was not granted this time: for example, the store of the leases cannot be reached.
    #[error(transparent)]
    Failed(#[from] BoxError),
}

text_in_debug! { LaneLeaseError: Closed, Failed }
