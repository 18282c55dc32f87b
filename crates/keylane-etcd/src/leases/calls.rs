//! The calls to etcd.

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::EtcdError;
use crate::leases::CarrierId;
use crate::link::Connection;
use crate::seen::{Seen, Watchman};

/// How many leases of etcd are looked at at a time.
const LOOKS: usize = 16;

/// How long a key may still exist whose lease of etcd has ended.
const ENDING: Duration = Duration::from_millis(500);

/// A connection, with what its answers show.
pub(crate) struct Calls<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) seen: &'a Watchman,
    /// The most operations in a transaction.
    pub(crate) operations: usize,
}

/// The answer to a transaction: that of each operation, and the state of etcd.
pub(crate) struct Done {
    pub(crate) succeeded: bool,
    pub(crate) answers: Vec<TxnOpResponse>,
    pub(crate) seen: Seen,
}

/// What a key was when it was to be created.
pub(crate) enum Made {
    /// It was absent, and was created with this revision.
    Created(i64),
    Exists(KeyValue),
}

/// How long a lease of etcd lasts, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// `None`: it has ended.
    pub(crate) seconds: Option<u64>,
    pub(crate) granted: u64,
}

impl Left {
    pub(crate) const ENDED: Self = Self {
        seconds: None,
        granted: 0,
    };

    /// Returns how long a key lasts that is on the lease.
    pub(crate) fn time(self) -> Duration {
        match self.seconds {
            // etcd rounds down.
            Some(seconds) => Duration::from_secs((seconds + 1).min(self.granted).max(1)),
            None => ENDING,
        }
    }
}

impl Calls<'_> {
    /// Runs a transaction, whatever the state of etcd. Returns its answer, and the state.
    pub(crate) async fn anyway(&self, txn: Txn) -> Result<(TxnResponse, Seen), EtcdError> {
        let mut kv = self.connection.client().kv_client();
        let answer = self.connection.ask(kv.txn(txn)).await?;
        let seen = Seen::of(answer.header())?;
        Ok((answer, seen))
    }

    /// Runs a transaction of which a majority knows: it must have an operation that reads or
    /// writes. One that only compares is answered by any server from its own state, which may be
    /// old.
    pub(crate) async fn txn(&self, txn: Txn) -> Result<Done, EtcdError> {
        let before = self.seen.before();
        let mut kv = self.connection.client().kv_client();
        let answer = self.connection.ask(kv.txn(txn)).await?;
        let seen = self.seen.answered(before, answer.header())?;
        Ok(Done {
            succeeded: answer.succeeded(),
            answers: answer.op_responses(),
            seen,
        })
    }

    /// Runs a transaction for each item, in as few calls as possible, all at the same time. The
    /// transactions are independent of each other, and come with the name of their key. Returns
    /// their answers in the order of the items.
    pub(crate) async fn each<T: Sync>(
        &self,
        items: &[T],
        txn: impl Fn(&T) -> (Vec<u8>, Txn) + Sync,
    ) -> Result<Vec<Done>, EtcdError> {
        let calls = items.chunks(self.at_once()).map(|items| {
            let inner = Vec::from_iter(items.iter().map(|item| TxnOp::txn(txn(item).1)));
            let (count, first) = (items.len(), txn(&items[0]).0);
            async move {
                // etcd 3.4 does not check the rights of a user inside of a transaction.
                let outer = Txn::new().when([always(first)]).and_then(inner);
                let done = self.txn(outer).await?;
                let answers = done.answers.into_iter().map(|answer| match answer {
                    TxnOpResponse::Txn(answer) => Ok(Done {
                        succeeded: answer.succeeded(),
                        answers: answer.op_responses(),
                        seen: done.seen,
                    }),
                    _ => Err(EtcdError::incomprehensible()),
                });
                let answers = answers.collect::<Result<Vec<_>, _>>()?;
                match answers.len() == count {
                    true => Ok(answers),
                    false => Err(EtcdError::incomprehensible()),
                }
            }
        });
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    /// The most transactions in one. Each of them has two comparisons at most, and etcd counts
    /// those of the largest along with all others.
    pub(crate) fn at_once(&self) -> usize {
        self.operations.saturating_sub(2).max(1)
    }

    /// Creates the keys that are absent.
    pub(crate) async fn create(
        &self,
        names: &[Vec<u8>],
        value: &str,
        carrier: CarrierId,
    ) -> Result<Vec<(Made, Seen)>, EtcdError> {
        let done = self
            .each(names, |name| {
                let put = PutOptions::new().with_lease(carrier);
                let txn = Txn::new()
                    .when([Compare::create_revision(name.clone(), CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(name.clone(), value, Some(put))])
                    .or_else([TxnOp::get(name.clone(), None)]);
                (name.clone(), txn)
            })
            .await?;
        let made = done.into_iter().map(|mut done| {
            let made = match done.succeeded {
                // The revision of the whole transaction: it is that of each write in it.
                true => Made::Created(done.seen.revision),
                false => Made::Exists(
                    found(done.answers.pop())?.ok_or_else(EtcdError::incomprehensible)?,
                ),
            };
            Ok((made, done.seen))
        });
        made.collect()
    }

    /// Grants a lease of etcd that lasts this long, or longer.
    pub(crate) async fn grant(&self, secs: u64) -> Result<CarrierId, EtcdError> {
        let ttl = i64::try_from(secs).unwrap_or(i64::MAX);
        let mut client = self.connection.client().lease_client();
        let answer = self.connection.ask(client.grant(ttl, None)).await?;
        match answer.ttl() >= ttl && answer.id() != 0 {
            true => Ok(answer.id()),
            false => Err(EtcdError::incomprehensible()),
        }
    }

    /// Keeps a lease of etcd alive. Returns `false` if there is none of this id.
    pub(crate) async fn keep(&self, id: CarrierId) -> Result<bool, EtcdError> {
        let mut client = self.connection.client().lease_client();
        // It waits for an answer with a time to live above zero.
        match self.connection.ask(client.keep_alive(id)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_lease_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns how long leases of etcd last.
    pub(crate) async fn left(
        &self,
        ids: impl IntoIterator<Item = CarrierId>,
    ) -> Result<Vec<(CarrierId, Left)>, EtcdError> {
        let looks = ids.into_iter().map(|id| async move {
            let mut client = self.connection.client().lease_client();
            let answer = self.connection.ask(client.time_to_live(id, None)).await;
            let left = match answer {
                Ok(answer) => Left {
                    seconds: u64::try_from(answer.ttl()).ok(),
                    granted: u64::try_from(answer.granted_ttl()).unwrap_or(0),
                },
                Err(error) if error.is_lease_missing() => Left::ENDED,
                Err(error) => return Err(error),
            };
            Ok((id, left))
        });
        stream::iter(looks)
            .buffer_unordered(LOOKS)
            .try_collect()
            .await
    }
}

/// Returns a comparison that is true: no version is negative.
fn always(name: Vec<u8>) -> Compare {
    Compare::version(name, CompareOp::Greater, -1)
}

/// Returns the key that an operation has read, if it exists.
pub(crate) fn found(answer: Option<TxnOpResponse>) -> Result<Option<KeyValue>, EtcdError> {
    match answer {
        Some(TxnOpResponse::Get(mut answer)) => Ok(answer.take_kvs().pop()),
        _ => Err(EtcdError::incomprehensible()),
    }
}
