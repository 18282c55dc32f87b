//! How the record of a term is written.

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use keylane_connector::ErrorKind;
use keylane_leader::store::{Recorded, Stage, TermRecord, after, encode, replaces};
use keylane_leases::Token;

use super::desk::{Desk, TRIES};
use super::read::record;
use crate::error::EtcdError;
use crate::leases::calls::{Calls, found};
use crate::leases::revision;

impl Desk {
    pub(super) async fn record_once(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        term: &TermRecord,
    ) -> Result<Recorded, EtcdError> {
        let name = self.core.names.record(key);
        for _ in 0..TRIES {
            let read = Txn::new().and_then([TxnOp::get(name.clone(), None)]);
            let mut done = calls.txn(read).await?;
            let found = found(done.answers.pop())?;
            let was = found.as_ref().map(record).transpose()?;
            let recorded = after(was.as_ref(), term);
            if !replaces(was.as_ref(), term) {
                return Ok(recorded);
            }
            let written = found.map_or(0, |found| found.mod_revision());
            let same = Compare::mod_revision(name.clone(), CompareOp::Equal, written);
            let write = Txn::new()
                .when([same])
                .and_then(self.writes(key, &name, term));
            if calls.txn(write).await?.succeeded {
                self.forget(key, &term.leader);
                return Ok(recorded);
            }
        }
        let why = "other processes record terms of the election at the same time: try again";
        Err(EtcdError::new(ErrorKind::Conflict, why))
    }

    fn writes(&self, key: &Bytes, name: &[u8], term: &TermRecord) -> Vec<TxnOp> {
        let leader = self.name_of(key, &term.leader);
        let mut writes = vec![
            TxnOp::put(name, encode(term), None),
            TxnOp::delete(leader, None),
        ];
        let chosen = term
            .chosen
            .as_ref()
            .filter(|chosen| **chosen != term.leader);
        if let Some(chosen) = chosen {
            writes.push(woken(self.name_of(key, chosen)));
        }
        if term.stage == Stage::Ended {
            writes.push(freed(self.core.names.lease(key), term.token));
        }
        writes
    }
}

/// Returns the operation that releases the lease of a term, if it is held under its token.
fn freed(name: Vec<u8>, token: Token) -> TxnOp {
    TxnOp::txn(
        Txn::new()
            .when([Compare::create_revision(
                name.clone(),
                CompareOp::Equal,
                revision(token),
            )])
            .and_then([TxnOp::delete(name, None)]),
    )
}

/// Returns the operation that wakes a candidate, if it is entered: it writes its key as it is.
fn woken(name: Vec<u8>) -> TxnOp {
    let same = PutOptions::new().with_ignore_value().with_ignore_lease();
    TxnOp::txn(
        Txn::new()
            .when([Compare::version(name.clone(), CompareOp::Greater, 0)])
            .and_then([TxnOp::put(name, "", Some(same))]),
    )
}
