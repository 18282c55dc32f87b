//! Leases: one key in etcd for each lease.
//!
//! Its value is the owner, its token is its `create_revision`, and it is attached to a lease of
//! etcd, its *carrier*: see [`book`]. Each change is a transaction that compares the key with what
//! was seen of it.
//!
//! ```text
//! acquire   carrier: keep alive, or grant ──► create the keys that are absent
//! renew     carrier: keep alive ──► compare: each key is on it, and was not written since
//! release   delete the keys with this token
//! ```
//!
//! etcd's own lock and election calls are not used: they go on without a lease, and leave keys
//! behind.

mod acquire;
mod book;
pub(crate) mod calls;
pub(crate) mod core;
mod fence;
mod look;
mod release;
mod renew;

pub(crate) use book::{CarrierId, revision};
pub use fence::{Fence, FenceError};

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_connector::ConfigError;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Owner, Wish};

use crate::leases::core::Core;
use crate::server::Etcd;

/// The fewest operations that are of use: a transaction in another one, with two comparisons.
const FEWEST: usize = 3;

/// Leases in etcd.
///
/// # Guarantees
///
/// The servers' own clocks decide when a lease ends, and they are monotonic. The holder counts from
/// before it sends a call, and gives the lease up a tenth of its time to live before etcd does. A
/// renewal counts if etcd has confirmed the time, a majority has then confirmed the key, and no
/// election of a leader came between: a leader that was deposed cannot confirm anything.
///
/// etcd loses nothing that it has confirmed, as long as a majority of the servers keeps its disks.
/// **If the data go back, by a snapshot that is restored or a folder that is put back, a key can
/// have a second holder while the first one still has it, and tokens repeat.** A process that has
/// seen later data refuses to go on. Restore with `--bump-revision` (etcd 3.6 and later), and wait
/// for the longest time to live before you start the servers.
///
/// # Times to live
///
/// etcd counts in whole seconds, and has a minimum: one and a half election time-outs, rounded up,
/// which is 2 seconds by default. A shorter time to live is rounded up, so a key whose holder has
/// died is free later than it says. Its holder still keeps to the time that it asked for. An end is
/// noticed by etcd within half a second.
///
/// # Tokens
///
/// The token of a lease is the `create_revision` of its key. Revisions rise with each change of
/// etcd's data, so tokens rise over all keys. [`fence`](Self::fence) has etcd itself compare it.
///
/// # Cancel safety
///
/// As in [`LeaseStore`]. The next call makes a new connection, because a call that was given up may
/// be one to a connection that is silent for good.
///
/// # Runtimes
///
/// It works in each Tokio runtime that has I/O and timers, also of one thread, and in several at a
/// time: each has a connection of its own. It does not work outside of Tokio.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_etcd::{Etcd, EtcdLeases};
/// use keylane_leases::Leases;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let etcd = Etcd::at(["http://etcd-1:2379", "http://etcd-2:2379", "http://etcd-3:2379"])?;
/// let store = EtcdLeases::open(&etcd, "accounts")?;
///
/// let leases = Leases::open(Arc::new(store))?;
/// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
/// # drop(lease);
/// # Ok(())
/// # }
/// ```
pub struct EtcdLeases {
    core: Arc<Core>,
}

impl EtcdLeases {
    /// Opens the leases of a namespace. It connects at the first call, and again after a connection
    /// has broken.
    ///
    /// All keys in etcd begin with `{namespace}/keylane/`. A user needs a role that may read and
    /// write the keys with this prefix.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a namespace that is empty, or that contains `/keylane/`.
    pub fn open(etcd: &Etcd, namespace: &str) -> Result<Self, ConfigError> {
        let core = Arc::new(Core::new(etcd, namespace)?);
        Ok(Self { core })
    }

    /// Sets the most operations in a transaction, as the servers' `--max-txn-ops`; 128 by default.
    /// More of them make calls for many keys faster.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] below 3.
    pub fn operations(self, operations: usize) -> Result<Self, ConfigError> {
        match operations {
            ..FEWEST => Err(ConfigError::new("operations", "must be 3 at least")),
            _ => {
                let core = Arc::new(self.core.with_operations(operations));
                Ok(Self { core })
            }
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

#[async_trait]
impl LeaseStore for EtcdLeases {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.core
            .repeat(
                |connection| async move { self.core.grant_all(&connection, owner, wishes).await },
            )
            .await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.core
            .repeat(
                |connection| async move { self.core.renew_all(&connection, owner, claims).await },
            )
            .await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        if claims.is_empty() {
            return Ok(());
        }
        self.core
            .repeat(|connection| async move {
                self.core
                    .give_back(&self.core.calls(&connection), owner, claims)
                    .await
            })
            .await
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        self.core
            .repeat(|connection| async move {
                let calls = self.core.calls(&connection);
                look::held_by(&self.core, &calls, key).await
            })
            .await
    }
}

impl fmt::Debug for EtcdLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLeases")
            .field("names", &self.core.names)
            .field("operations", &self.core.operations)
            .finish_non_exhaustive()
    }
}
