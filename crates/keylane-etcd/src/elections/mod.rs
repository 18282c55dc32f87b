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
//! The name of the history is in a key: the id of the cluster, and a random text. A process that
//! finds another cluster there, or sees the revision go back, writes a new name: then all others
//! see another history too, and the writes of terms of the old one are refused.

mod board;
mod desk;
mod enter;
mod read;
mod record;
mod watch;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::Txn;
use keylane_connector::ConfigError;
use keylane_leader::Term;
use keylane_leader::store::{
    CandidateId, Election, ElectionStore, Entry, History, Recorded, TermRecord,
};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};

use self::desk::Desk;
use crate::leases::{EtcdLeases, Fence};
use crate::link::Connection;
use crate::server::Etcd;

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
    desk: Desk,
}

impl EtcdElections {
    /// Opens the elections of a namespace, as [`EtcdLeases::open`] does with leases.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a namespace that is empty, or that contains `/keylane/`.
    pub fn open(etcd: &Etcd, namespace: &str) -> Result<Self, ConfigError> {
        let leases = EtcdLeases::open(etcd, namespace)?;
        let desk = Desk::new(leases.core());
        Ok(Self { leases, desk })
    }

    /// Returns the leases of the terms, for their [fences](EtcdLeases::fence).
    pub fn leases(&self) -> &EtcdLeases {
        &self.leases
    }

    /// Returns the fence of a term: etcd refuses writes behind it when the term has ended, or when
    /// etcd is in another history than that of the term. It does not ask etcd.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_etcd::etcd_client::{Txn, TxnOp};
    /// # use keylane_etcd::{EtcdElections, FenceError};
    /// # use keylane_leader::Term;
    ///
    /// # async fn step(store: &EtcdElections, term: &Term) -> Result<(), FenceError> {
    /// let billed = Txn::new().and_then([TxnOp::put("billed-until", "2026-11", None)]);
    /// store.fence(term).commit(billed).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self, term: &Term) -> Fence {
        let history = self.leases.core().names.history();
        let fence = self.leases.fence(term.key(), term.token());
        fence.and_value(history, term.history().as_str())
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

    async fn held_by(
        &self,
        key: &Bytes,
    ) -> Result<Option<keylane_leases::store::Holder>, StoreError> {
        self.leases.held_by(key).await
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
        let desk = &self.desk;
        let call = |connection: Connection| async move {
            desk.enter_once(&desk.core.calls(&connection), key, entry, ttl)
                .await
        };
        desk.core.repeat(call).await
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        let desk = &self.desk;
        let call = |connection: Connection| async move {
            let calls = desk.core.calls(&connection);
            let done = calls.txn(Txn::new().and_then(desk.reads(key))).await?;
            desk.election(&calls, key, done).await
        };
        desk.core.repeat(call).await
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        let desk = &self.desk;
        let call = |connection: Connection| async move {
            desk.withdraw_once(&desk.core.calls(&connection), key, candidate)
                .await
        };
        desk.core.repeat(call).await
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let desk = &self.desk;
        let call = |connection: Connection| async move {
            desk.record_once(&desk.core.calls(&connection), key, term)
                .await
        };
        desk.core.repeat(call).await
    }

    async fn history(&self) -> Result<History, StoreError> {
        let desk = &self.desk;
        let call = |connection: Connection| async move {
            desk.history_once(&desk.core.calls(&connection)).await
        };
        desk.core.repeat(call).await
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let core = &self.desk.core;
        let connection = core.link.connection().await?;
        let calls = core.calls(&connection);
        Ok(self.desk.wait(&calls, key, candidate, seen).await?)
    }
}

impl fmt::Debug for EtcdElections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdElections")
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}
