//! How a candidate enters an election, and withdraws.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use keylane_connector::ErrorKind;
use keylane_leader::store::{CandidateId, Election, Entry};

use super::desk::{Desk, TRIES};
use crate::error::EtcdError;
use crate::leases::calls::Calls;
use crate::leases::core::seconds;

impl Desk {
    pub(super) async fn enter_once(
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

    pub(super) async fn withdraw_once(
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
