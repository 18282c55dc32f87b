//! Elections: the lease of the term, the record of the last term, and a key for each candidate.
//!
//! ```text
//! {namespace}/keylane/leases/…       the lease of the term; its token is that of the term
//! {namespace}/keylane/records/…      the last term: stays
//! {namespace}/keylane/candidates/…   one key for each candidate, on a lease of etcd of its own:
//!                                    its rank; the order is that of rank and create_revision
//! {namespace}/keylane/history        the name of the history
//! ```
//!
//! # How a candidate waits
//!
//! It reads the election, and watches from the revision of that read on: nothing is between. The
//! next one watches the lease and the record, and each other one the candidate before it, so a
//! change wakes one, whatever their number. When a leader chooses its successor, the record's
//! transaction also writes the key of the chosen one, which wakes it.
//!
//! # Histories
//!
//! The name of the history is the id of the cluster, and a random text in a key. A process that
//! sees the revision go back writes a new text: then all others see another history too.

mod board;
mod read;
mod record;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use keylane_connector::{ConfigError, ErrorKind, lock};
use keylane_leader::store::{
    CandidateId, Election, ElectionStore, Entry, History, Recorded, TermRecord,
};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::leases::calls::Calls;
use crate::leases::{CarrierId, EtcdLeases, seconds};
use crate::link::Connection;
use crate::server::Etcd;

/// How often a call is begun again, because etcd has changed meanwhile.
const TRIES: usize = 8;

/// Elections in etcd.
///
/// # Guarantees
///
/// Those of [`EtcdLeases`], whose lease is the term, with this one: when the data of etcd go back,
/// a process that has seen later data gives them a new [history](ElectionStore::history), which all
/// other processes see. A process sees it at its next call. If no process of the election has seen
/// the later data, none can know: then nothing was lost that a process relies on, but a target of
/// writes may have seen higher tokens.
///
/// # What it costs
///
/// A candidate that waits has one watch, and enters again by two calls. A change wakes one
/// candidate, and each watcher.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use keylane_etcd::{Etcd, EtcdElections};
/// use keylane_leader::ElectionStore;
///
/// # fn main() -> Result<(), keylane_etcd::ConfigError> {
/// let etcd = Etcd::at(["http://etcd-1:2379", "http://etcd-2:2379", "http://etcd-3:2379"])?;
/// let store: Arc<dyn ElectionStore> = Arc::new(EtcdElections::open(&etcd, "billing")?);
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
pub struct EtcdElections {
    leases: EtcdLeases,
    entered: Mutex<HashMap<(Bytes, CandidateId), Place>>,
}

/// Where a candidate of this process is entered.
#[derive(Clone, Copy, Debug)]
struct Place {
    carrier: CarrierId,
    secs: u64,
    /// When it is gone, unless it is entered again.
    until: Instant,
}

impl EtcdElections {
    /// Opens the elections of a namespace, as [`EtcdLeases::open`] does with leases.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a namespace that is empty, or that contains `/keylane/`.
    pub fn open(etcd: &Etcd, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            leases: EtcdLeases::open(etcd, namespace)?,
            entered: Mutex::default(),
        })
    }

    /// Returns the leases of the terms, for their [writers](EtcdLeases::writer).
    pub fn leases(&self) -> &EtcdLeases {
        &self.leases
    }

    fn name_of(&self, key: &Bytes, candidate: &CandidateId) -> Vec<u8> {
        let mut name = self.leases.names().candidates(key);
        name.extend_from_slice(candidate.as_str().as_bytes());
        name
    }

    async fn enter_once(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, EtcdError> {
        for _ in 0..TRIES {
            let place = self.place(calls, key, entry, seconds(ttl)).await?;
            let name = self.name_of(key, &entry.id);
            let there = Compare::lease(name.clone(), CompareOp::Equal, place.carrier);
            let put = PutOptions::new().with_lease(place.carrier);
            let put = TxnOp::put(name.clone(), entry.rank.to_string(), Some(put));
            let read = self.reads(key);
            let write = [vec![put], read.clone()].concat();
            let txn = Txn::new().when([there]).and_then(read).or_else(write);
            match calls.txn(txn).await {
                Ok(done) => return self.election(calls, key, done).await,
                Err(error) if error.is_lease_missing() => self.forget(key, &entry.id),
                Err(error) => return Err(error),
            }
        }
        Err(EtcdError::new(
            ErrorKind::Unable,
            "the lease of the candidate ends as soon as it is granted: see what revokes it",
        ))
    }

    /// Returns a lease of etcd for a candidate: its own, kept alive, or a new one.
    async fn place(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        entry: &Entry,
        secs: u64,
    ) -> Result<Place, EtcdError> {
        let now = Instant::now();
        let at = (key.clone(), entry.id.clone());
        let known = {
            let mut entered = lock(&self.entered);
            // A candidate that was given up is entered no more.
            entered.retain(|_, place| place.until > now);
            entered.get(&at).copied().filter(|place| place.secs == secs)
        };
        let carrier = match known {
            Some(known) if calls.keep(known.carrier).await? => known.carrier,
            _ => calls.grant(secs).await?,
        };
        let place = Place {
            carrier,
            secs,
            until: now + Duration::from_secs(secs),
        };
        lock(&self.entered).insert(at, place);
        Ok(place)
    }

    fn forget(&self, key: &Bytes, candidate: &CandidateId) {
        lock(&self.entered).remove(&(key.clone(), candidate.clone()));
    }

    async fn withdraw_once(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        candidate: &CandidateId,
    ) -> Result<(), EtcdError> {
        self.forget(key, candidate);
        let delete = TxnOp::delete(self.name_of(key, candidate), None);
        calls.txn(Txn::new().and_then([delete])).await.map(drop)
    }
}

#[async_trait]
impl LeaseStore for EtcdElections {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.leases.acquire(owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.leases.renew(owner, claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        self.leases.release(owner, claims).await
    }
}

#[async_trait]
impl ElectionStore for EtcdElections {
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        let leases = &self.leases;
        let call = |connection: Connection| async move {
            self.enter_once(&leases.calls(&connection), key, entry, ttl)
                .await
        };
        leases.repeat(call).await
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        let leases = &self.leases;
        let call = |connection: Connection| async move {
            let calls = leases.calls(&connection);
            let done = calls.txn(Txn::new().and_then(self.reads(key))).await?;
            self.election(&calls, key, done).await
        };
        leases.repeat(call).await
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        let leases = &self.leases;
        let call = |connection: Connection| async move {
            self.withdraw_once(&leases.calls(&connection), key, candidate)
                .await
        };
        leases.repeat(call).await
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let leases = &self.leases;
        let call = |connection: Connection| async move {
            self.record_once(&leases.calls(&connection), key, term)
                .await
        };
        leases.repeat(call).await
    }

    async fn history(&self) -> Result<History, StoreError> {
        let leases = &self.leases;
        let call = |connection: Connection| async move {
            self.history_once(&leases.calls(&connection)).await
        };
        leases.repeat(call).await
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let connection = self.leases.link().connection().await?;
        let calls = self.leases.calls(&connection);
        Ok(self.wait(&calls, key, candidate, seen).await?)
    }
}

impl fmt::Debug for EtcdElections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdElections")
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}
