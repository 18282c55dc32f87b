//! Leases: two ephemeral nodes for each, the lease and its grant.
//!
//! ```text
//! /root/leases/kaccount-7         owner, grant, time to live    who has the key; czxid: the token
//! /root/grants/<session>-<n>      empty                         whether this grant is in force
//! ```
//!
//! Both are made in one transaction and removed in one. ZooKeeper compares only a *version* before
//! it deletes or checks a node, and each new node begins with version 0. So the name of the lease
//! cannot tell one grant from the next, but the name of a grant can: it never comes again. Each
//! operation that removes or guards something names the grant first, and fails as a whole if that
//! is gone.

mod acquire;
mod data;
mod hold;
mod look;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_connector::ConfigError;
use keylane_leases::LeaseStore;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, Owner, Wish};
use tokio::sync::Mutex;

pub(crate) use self::data::LeaseData;
use crate::link::Link;
use crate::server::{ZooKeeper, root};

/// Leases in ZooKeeper.
///
/// A store has one session, on a thread of its own: it can be used from several runtimes, also at
/// the same time. It is opened at the first call, and again after it is lost; all leases of a lost
/// session are lost.
///
/// # Guarantees
///
/// A lease is held from its grant until its time to live has passed without a renewal, or until the
/// session ends. Three clocks count, all monotonic; that of the time of day does not matter:
///
/// - that of the holder, which gives the lease up after nine tenths of its time to live, counted
///   from before the request was sent;
/// - that of this store, which removes a lease that was not renewed in its time to live;
/// - that of the leader of the ensemble, which ends a session that was silent for its time-out. A
///   lease of a process that has died lasts so long, and not only its time to live.
///
/// The session outlasts each confirmed renewal by the time to live of the lease, also if a server
/// or the leader dies or is cut off then: a renewal is confirmed only by a transaction that a
/// majority has written in this session. That is why a time to live can be at most
/// [`ZooKeeper::longest_ttl`]; a longer one is an error.
///
/// # Tokens
///
/// A token is the transaction that has granted the lease (`czxid`). It rises with each grant, also
/// over elections of a leader and restarts. It does not over a **restored backup**: the servers
/// count on from the transaction of the backup. See [`history`](keylane_leader::ElectionStore).
///
/// # Nodes
///
/// A lease is a node below `leases`, and another one below `grants`. Do not remove one of them by
/// hand without the other: to end a lease, remove both, or the session.
///
/// # Cancel safety
///
/// As in [`LeaseStore`]. Of a call that is dropped, a part may be done. A lease whose answer was
/// dropped runs out after its time to live.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_leases::Leases;
/// use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let zookeeper = ZooKeeper::at("zk-1:2181,zk-2:2181,zk-3:2181")?;
/// let store = ZooKeeperLeases::open(&zookeeper, "/orders")?;
///
/// let leases = Leases::open(Arc::new(store))?;
/// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
/// # drop(lease);
/// # Ok(())
/// # }
/// ```
pub struct ZooKeeperLeases {
    pub(crate) link: Link,
    /// Held while a candidate enters an election.
    pub(crate) entering: Mutex<()>,
}

impl ZooKeeperLeases {
    /// Opens the leases below a root, such as `/orders`. It connects at the first call, and makes
    /// the nodes of the root then.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the root is no absolute path, has a part with other characters than
    /// visible ASCII, is `/`, or is below `/zookeeper`.
    pub fn open(zookeeper: &ZooKeeper, root: impl Into<String>) -> Result<Self, ConfigError> {
        let root = self::root(root)?;
        Ok(Self {
            link: Link::new(zookeeper.clone(), root),
            entering: Mutex::new(()),
        })
    }
}

#[async_trait]
impl LeaseStore for ZooKeeperLeases {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        acquire::acquire(&self.link, owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        hold::renew(&self.link, owner, claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        hold::release(&self.link, owner, claims).await
    }

    /// Returns who has the lease as the server knows it that this session is connected to: it may
    /// be behind. A lease of another session ends with that session, and is said to last for its
    /// whole time: only the process that has it knows when it was renewed.
    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        look::held_by(&self.link, key).await
    }
}

impl fmt::Debug for ZooKeeperLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperLeases")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
