//! How an election and its history are read.

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse};
use keylane_connector::ErrorKind;
use keylane_leader::store::{CandidateId, Election, History, Holder, TermRecord, decode};
use keylane_leases::Owner;

use super::board::{Board, Entered};
use super::desk::{Desk, TRIES};
use crate::error::EtcdError;
use crate::leases::calls::{Calls, Done, Left, found};
use crate::leases::core::token;

/// What the reads of an election have shown.
pub(super) struct Read {
    pub(super) board: Board,
    /// The lease of etcd that the lease of the term is on.
    carrier: i64,
}

impl Desk {
    /// Returns the operations that read an election, for the end of a transaction.
    pub(super) fn reads(&self, key: &Bytes) -> Vec<TxnOp> {
        let names = &self.core.names;
        let all = GetOptions::new().with_prefix();
        vec![
            TxnOp::get(names.lease(key), None),
            TxnOp::get(names.record(key), None),
            TxnOp::get(names.candidates(key), Some(all)),
        ]
    }

    /// Takes the answers of a transaction that ends with the [reads](Self::reads).
    pub(super) fn read(&self, key: &Bytes, answers: Vec<TxnOpResponse>) -> Result<Read, EtcdError> {
        let mut answers = answers.into_iter().rev();
        let Some(TxnOpResponse::Get(mut entered)) = answers.next() else {
            return Err(EtcdError::incomprehensible());
        };
        let term = found(answers.next())?;
        let lease = found(answers.next())?;
        let prefix = self.core.names.candidates(key);
        let entered = entered.take_kvs().into_iter();
        let candidates = entered.map(|entered| candidate(&prefix, &entered));
        let candidates = candidates.collect::<Result<Vec<_>, _>>()?;
        let holder = lease.as_ref().map(|lease| token(lease.create_revision()));
        let term = term.map(|term| record(&term)).transpose()?;
        Ok(Read {
            board: Board::new(holder, term, candidates),
            carrier: lease.map_or(0, |lease| lease.lease()),
        })
    }

    pub(super) async fn election(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        done: Done,
    ) -> Result<Election, EtcdError> {
        let Read { board, carrier } = self.read(key, done.answers)?;
        let holder = match board.holder {
            Some(token) => {
                let left = calls.left([carrier]).await?.pop();
                let remaining = left.map_or(Left::ENDED, |(_, left)| left).time();
                Some(Holder { token, remaining })
            }
            None => None,
        };
        Ok(Election {
            holder,
            revision: done.seen.revision.unsigned_abs(),
            ..board.election()
        })
    }

    /// Returns the name of the history. Begins a new one if there is none, or if the data went
    /// back.
    pub(super) async fn history_once(&self, calls: &Calls<'_>) -> Result<History, EtcdError> {
        let name = self.core.names.history();
        for _ in 0..TRIES {
            let before = calls.seen.before();
            let read = Txn::new().and_then([TxnOp::get(name.clone(), None)]);
            let (mut answer, seen) = calls.anyway(read).await?;
            let key = found(answer.op_responses().pop())?;
            let header = answer
                .take_header()
                .ok_or_else(EtcdError::incomprehensible)?;
            let went_back = calls.seen.answered(before, Some(&header));
            let cluster = format!("{:016x}", header.cluster_id());
            let text = key.as_ref().and_then(|key| key.value_str().ok());
            let of_here = text.filter(|text| text.starts_with(&cluster));
            if let (Ok(_), Some(text)) = (&went_back, of_here) {
                return Ok(History::new(text));
            }
            // If another process is faster, its text is a new one, too.
            let was = key.map_or(0, |key| key.mod_revision());
            let new = format!("{cluster}/{}", Owner::random());
            let write = Txn::new()
                .when([Compare::mod_revision(name.clone(), CompareOp::Equal, was)])
                .and_then([TxnOp::put(name.clone(), new, None)]);
            calls.anyway(write).await?;
            if let Err(error) = went_back {
                tracing::warn!(%error, "elections go on in a new history");
                self.forget_all();
                self.core.go_on(seen);
            }
        }
        Err(EtcdError::new(
            ErrorKind::Unable,
            "the data of etcd go back again and again: see what puts them back",
        ))
    }
}

fn candidate(prefix: &[u8], key: &KeyValue) -> Result<Entered, EtcdError> {
    let id = key.key().strip_prefix(prefix);
    let id = id.and_then(|id| CandidateId::new(String::from_utf8_lossy(id)));
    let rank = std::str::from_utf8(key.value()).ok();
    let rank = rank.and_then(|rank| rank.parse().ok());
    match (id, rank) {
        (Some(id), Some(rank)) => Ok(Entered {
            id,
            rank,
            since: key.create_revision(),
        }),
        _ => Err(foreign(key)),
    }
}

pub(super) fn record(key: &KeyValue) -> Result<TermRecord, EtcdError> {
    let text = std::str::from_utf8(key.value()).ok();
    text.and_then(decode).ok_or_else(|| foreign(key))
}

fn foreign(key: &KeyValue) -> EtcdError {
    let key = String::from_utf8_lossy(key.key());
    let why = format!("the key {key} was written by another program: delete it");
    EtcdError::new(ErrorKind::WrongType, why)
}
