//! What all calls about leases share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use keylane_connector::{ConfigError, lock};
use keylane_leases::error::StoreError;
use keylane_leases::{Owner, Token};
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::leases::book::{Book, CarrierId, Place};
use crate::leases::calls::Calls;
use crate::link::{Connection, Link};
use crate::names::Names;
use crate::seen::{Seen, Watchman};
use crate::server::Etcd;

/// The most operations that etcd takes in a transaction, unless its operator says otherwise.
const OPERATIONS: usize = 128;

/// How often a call is begun again, because etcd has changed meanwhile.
pub(super) const TRIES: usize = 4;

/// The connections to etcd, and what is known of it.
pub(crate) struct Core {
    pub(crate) link: Link,
    pub(crate) names: Names,
    seen: Watchman,
    pub(super) book: Mutex<Book>,
    pub(super) operations: usize,
}

/// A carrier with its whole time before it.
pub(super) struct Fresh {
    pub(super) place: Place,
    /// The state of etcd before it was kept alive; `None` if it was granted, which a majority has
    /// agreed to.
    pub(super) kept: Option<Seen>,
}

impl Core {
    pub(super) fn new(etcd: &Etcd, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            link: Link::new(etcd.clone()),
            names: Names::new(namespace)?,
            seen: Watchman::default(),
            book: Mutex::default(),
            operations: OPERATIONS,
        })
    }

    /// Returns the same with another number of operations. It has not called etcd yet.
    pub(super) fn with_operations(&self, operations: usize) -> Self {
        Self {
            link: self.link.again(),
            names: self.names.clone(),
            seen: Watchman::default(),
            book: Mutex::default(),
            operations,
        }
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
    pub(super) async fn carrier(
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
    pub(super) fn without_carrier(
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
}

/// Returns a time to live in whole seconds, rounded up.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1)
}

/// Groups the places of items by their time to live.
pub(super) fn by_seconds<T>(items: &[T], ttl: impl Fn(&T) -> Duration) -> Vec<(u64, Vec<usize>)> {
    let mut groups = BTreeMap::<u64, Vec<usize>>::new();
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
