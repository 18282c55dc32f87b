//! Writes that etcd refuses when the lease has ended.

use std::fmt;
use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse, TxnResponse};
use keylane_leases::Token;
use thiserror::Error;

use super::EtcdLeases;
use crate::error::EtcdError;
use crate::leases::book::revision;
use crate::leases::core::Core;

impl EtcdLeases {
    /// Returns the fence of the lease of a key under this token. It does not ask etcd.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_etcd::etcd_client::{Compare, CompareOp, Txn, TxnOp};
    /// # use keylane_etcd::{EtcdLeases, FenceError};
    /// # use keylane_leases::Lease;
    ///
    /// # async fn pay(store: &EtcdLeases, lease: &Lease) -> Result<(), FenceError> {
    /// let fence = store.fence(lease.key(), lease.token());
    /// let paid = Txn::new()
    ///     .when([Compare::value("balance", CompareOp::Equal, "100")])
    ///     .and_then([TxnOp::put("balance", "93", None)]);
    /// let answer = fence.commit(paid).await?;
    /// println!("the balance was 100: {}", answer.succeeded());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self, key: impl AsRef<[u8]>, token: Token) -> Fence {
        let name = self.core().names.lease(key.as_ref());
        let created = revision(token);
        Fence {
            core: Arc::clone(self.core()),
            token,
            fence: vec![Compare::create_revision(name, CompareOp::Equal, created)],
        }
    }
}

/// Commits writes to etcd under a lease. etcd executes a write while the lease is held under its
/// token, and refuses it afterwards: also the late write of a holder that was paused.
///
/// The lease and the writes are in the same etcd. For a target that is elsewhere, give it the
/// token, and let it refuse a lower one than it has seen.
#[derive(Clone)]
pub struct Fence {
    core: Arc<Core>,
    token: Token,
    /// True while the lease is held under its token.
    fence: Vec<Compare>,
}

/// The reason why a fenced write was not done.
#[non_exhaustive]
#[derive(Debug, Clone, Error)]
pub enum FenceError {
    /// The lease is not held under this token any more, or etcd is in another history than that of
    /// the term. Nothing was written.
    #[error("the lease is not held under the token {token}: acquire it again before you write")]
    Fenced {
        /// The token of the fence.
        token: Token,
    },
    /// etcd has not answered, or has refused: the write may be done or not.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl Fence {
    /// Returns the token of the lease.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Lets etcd compare the value of a key, too.
    pub(crate) fn and_value(mut self, key: Vec<u8>, value: &str) -> Self {
        self.fence
            .push(Compare::value(key, CompareOp::Equal, value));
        self
    }

    /// Commits a transaction if the lease is held. Returns the answer to it, which also says
    /// whether its own comparisons were true.
    ///
    /// It is not tried again: a write may be done although its answer was lost. It takes one
    /// operation of those that etcd allows in a transaction.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`] if the lease has ended; [`FenceError::Etcd`] without an answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the write may be done or not, also later, but only while the lease
    /// is held.
    pub async fn commit(&self, txn: Txn) -> Result<TxnResponse, FenceError> {
        let fenced = Txn::new().when(self.fence.clone());
        let fenced = fenced.and_then([TxnOp::txn(txn)]);
        let connection = self.core.link.connection().await?;
        let mut kv = connection.client().kv_client();
        let answer = connection.ask(kv.txn(fenced)).await?;
        if !answer.succeeded() {
            return Err(FenceError::Fenced { token: self.token });
        }
        match answer.op_responses().pop() {
            Some(TxnOpResponse::Txn(answer)) => Ok(answer),
            _ => Err(EtcdError::incomprehensible().into()),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
