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
mod fence;
mod renew;

pub use fence::{FencedError, FencedWriter};

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use keylane_connector::{ConfigError, lock};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Token, Wish};
use tokio::time::Instant;

use crate::error::EtcdError;
pub(crate) use crate::leases::book::CarrierId;
use crate::leases::book::{Book, Place, revision};
use crate::leases::calls::Calls;
use crate::link::{Connection, Link};
use crate::names::Names;
use crate::seen::{Seen, Watchman};
use crate::server::Etcd;

/// The most operations that etcd takes in a transaction, unless its operator says otherwise.
const OPERATIONS: usize = 128;

/// The fewest operations that are of use: a transaction in another one, with two comparisons.
const FEWEST: usize = 3;

/// How often a call is begun again, because etcd has changed meanwhile.
const TRIES: usize = 4;

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
/// etcd's data, so tokens rise over all keys. [`writer`](Self::writer) has etcd itself compare it.
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
    link: Arc<Link>,
    names: Names,
    seen: Arc<Watchman>,
    book: Mutex<Book>,
    operations: usize,
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
        Ok(Self {
            link: Arc::new(Link::new(etcd.clone())),
            names: Names::new(namespace)?,
            seen: Arc::default(),
            book: Mutex::default(),
            operations: OPERATIONS,
        })
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
            _ => Ok(Self { operations, ..self }),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Goes on with other data of etcd: nothing of what is known of the keys is true any more.
    pub(crate) fn go_on(&self, from: Seen) {
        lock(&self.book).clear();
        self.seen.go_on(from);
    }

    pub(crate) fn calls<'a>(&'a self, connection: &'a Connection) -> Calls<'a> {
        Calls {
            connection,
            seen: &self.seen,
            operations: self.operations,
        }
    }

    /// Runs a call with a connection. If that breaks, the call is run once more, with a new one: a
    /// server, or a network, closes connections that are idle. A call may be executed twice.
    pub(crate) async fn repeat<T, F>(&self, call: impl Fn(Connection) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let answer = self.once(&call).await;
        let answer = match answer {
            Err(error) if error.breaks_connection() && error.is_retryable() => {
                self.once(&call).await
            }
            answer => answer,
        };
        Ok(answer?)
    }

    async fn once<T, F>(&self, call: &impl Fn(Connection) -> F) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        call(self.link.connection().await?).await
    }

    /// Returns a carrier that has its whole time from now on: the current one, kept alive, or a new
    /// one.
    async fn carrier(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        secs: u64,
    ) -> Result<Fresh, EtcdError> {
        let current = lock(&self.book).carrier(owner, secs, Instant::now());
        if let Some(id) = current {
            let before = self.seen.before();
            if calls.keep(id).await? {
                return Ok(Fresh {
                    place: Place { carrier: id, secs },
                    kept: Some(before),
                });
            }
            lock(&self.book).ended(owner, id);
        }
        let place = Place {
            carrier: calls.grant(secs).await?,
            secs,
        };
        lock(&self.book).began(owner, place, Instant::now());
        Ok(Fresh { place, kept: None })
    }

    /// Drops what is known of a carrier that etcd does not know, and passes other errors on.
    fn without_carrier(
        &self,
        owner: &Owner,
        carrier: CarrierId,
        error: EtcdError,
    ) -> Result<(), EtcdError> {
        match error.is_lease_missing() {
            true => {
                lock(&self.book).ended(owner, carrier);
                Ok(())
            }
            false => Err(error),
        }
    }

    async fn give_back(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<(), EtcdError> {
        calls
            .each(claims, |claim| {
                let name = self.names.lease(&claim.key);
                let token = revision(claim.token);
                let txn = Txn::new()
                    .when([
                        Compare::create_revision(name.clone(), CompareOp::Equal, token),
                        Compare::value(name.clone(), CompareOp::Equal, owner.as_str()),
                    ])
                    .and_then([TxnOp::delete(name.clone(), None)]);
                (name, txn)
            })
            .await?;
        let mut book = lock(&self.book);
        for claim in claims {
            book.lost(owner, &claim.key, claim.token);
        }
        Ok(())
    }
}

/// A carrier with its whole time before it.
struct Fresh {
    place: Place,
    /// The state of etcd before it was kept alive; `None` if it was granted, which a majority has
    /// agreed to.
    kept: Option<Seen>,
}

#[async_trait]
impl LeaseStore for EtcdLeases {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.repeat(|connection| async move { self.grant_all(&connection, owner, wishes).await })
            .await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.repeat(|connection| async move { self.renew_all(&connection, owner, claims).await })
            .await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        if claims.is_empty() {
            return Ok(());
        }
        self.repeat(|connection| async move {
            self.give_back(&self.calls(&connection), owner, claims)
                .await
        })
        .await
    }
}

impl fmt::Debug for EtcdLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLeases")
            .field("names", &self.names)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

/// Returns a time to live in whole seconds, rounded up.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1)
}

/// Groups the places of items by their time to live.
fn by_seconds<T>(items: &[T], ttl: impl Fn(&T) -> Duration) -> Vec<(u64, Vec<usize>)> {
    let mut groups = std::collections::BTreeMap::<u64, Vec<usize>>::new();
    for (at, item) in items.iter().enumerate() {
        groups.entry(seconds(ttl(item))).or_default().push(at);
    }
    groups.into_iter().collect()
}

/// Returns the token of a key that was created with this revision.
pub(crate) fn token(create_revision: i64) -> Token {
    Token(create_revision.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_rounded_up() {
        let times = [0, 1, 1_000, 1_001, 2_999].map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(times, [1, 1, 1, 2, 3]);
    }

    #[test]
    fn items_are_grouped_by_their_time() {
        let groups = by_seconds(&[3, 1, 3, 2], |secs| Duration::from_secs(*secs));
        assert_eq!(groups, [(1, vec![1]), (2, vec![3]), (3, vec![0, 2])]);
    }
}
