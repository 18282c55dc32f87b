//! Writes that ZooKeeper refuses if the lease is over.

use std::future::Future;

use bytes::Bytes;
use keylane_leases::Token;
use keylane_leases::error::StoreError;
use keylane_rt::text_in_debug;
use thiserror::Error;
use zookeeper_client::{CreateMode, Error as ClientError, MultiWriteError, MultiWriter};

use crate::error::{store, words};
use crate::leases::{LeaseData, ZooKeeperLeases};
use crate::session::Session;

/// The reason why a fenced write was not done.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum FenceError {
    /// The lease is no longer held under this token: it was released, has run out, or was granted
    /// anew. Nothing was written. Stop writing.
    #[error("the lease is no longer held under token {0}: nothing was written, stop writing")]
    Fenced(Token),
    /// ZooKeeper has refused an operation. Nothing was written.
    #[error("operation {at} was refused, and nothing was written: {why}")]
    Refused {
        /// Which operation, counted from 0 in the order in which they were added.
        at: usize,
        /// The reason.
        why: Refusal,
    },
    /// There is no answer: the write may be done or not. Read, or try again.
    #[error(transparent)]
    Unknown(#[from] StoreError),
}

text_in_debug! { FenceError: Fenced, Refused, Unknown }

/// Why ZooKeeper has refused an operation.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The node, or the one that it is to be below, does not exist.
    #[error("there is no such node, or none that it is below: create it first")]
    NoNode,
    /// The node exists already.
    #[error("the node exists already: use `set`")]
    NodeExists,
    /// The node has another version.
    #[error("the node has another version: read it again")]
    Version,
    /// The node has others below it.
    #[error("the node has others below it: delete them first")]
    NotEmpty,
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

text_in_debug! { Refusal: NoNode, NodeExists, Version, NotEmpty, Other }

/// Operations on any nodes of the servers, which are done together, and only while a lease is held:
/// made by [`ZooKeeperLeases::fence`].
///
/// A version of `None` is any.
///
/// # Examples
///
/// ```no_run
/// # async fn pay(
/// #     leases: &keylane_zookeeper::ZooKeeperLeases,
/// #     lease: &keylane_leases::Lease,
/// # ) -> Result<(), keylane_zookeeper::FenceError> {
/// leases
///     .fence("account-7", lease.token())
///     .set("/balances/account-7", "120", Some(4))
///     .create("/payments/p-1", "20")
///     .commit()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written before `commit`"]
pub struct Fence<'a> {
    leases: &'a ZooKeeperLeases,
    key: Bytes,
    token: Token,
    operations: Vec<Operation>,
}

#[derive(Debug)]
enum Operation {
    Create(String, Bytes),
    Set(String, Bytes, Option<i32>),
    Delete(String, Option<i32>),
    Check(String, i32),
}

impl ZooKeeperLeases {
    /// Begins a write that is done only while the lease of this key is held under this token.
    /// ZooKeeper itself checks that, in the same transaction: a holder that was paused, and does
    /// not know yet that its lease is over, can write nothing.
    ///
    /// Any process may write so, also one that does not hold the lease itself.
    pub fn fence(&self, key: impl Into<Bytes>, token: Token) -> Fence<'_> {
        Fence {
            leases: self,
            key: key.into(),
            token,
            operations: Vec::new(),
        }
    }

    /// Returns the path of a node that exists as long as the lease of this key is held under this
    /// token, and never again: for transactions of a client of your own. Let each begin with a
    /// check of this node, for version 0.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`] if the lease is not held under this token;
    /// [`FenceError::Unknown`] if the servers cannot be reached.
    pub async fn guard(&self, key: impl Into<Bytes>, token: Token) -> Result<String, FenceError> {
        let session = self.link.session().await?;
        guard(&session, &key.into(), token).await
    }
}

impl Fence<'_> {
    /// Adds the creation of a node that outlasts the lease.
    pub fn create(self, path: impl Into<String>, data: impl Into<Bytes>) -> Self {
        self.with(Operation::Create(path.into(), data.into()))
    }

    /// Adds a change of the data of a node, if it has this version.
    pub fn set(
        self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        version: Option<i32>,
    ) -> Self {
        self.with(Operation::Set(path.into(), data.into(), version))
    }

    /// Adds the removal of a node, if it has this version.
    pub fn delete(self, path: impl Into<String>, version: Option<i32>) -> Self {
        self.with(Operation::Delete(path.into(), version))
    }

    /// Adds the condition that a node has this version.
    pub fn check(self, path: impl Into<String>, version: i32) -> Self {
        self.with(Operation::Check(path.into(), version))
    }

    fn with(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Does all operations, or none of them.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: nothing was written, unless it is [`Unknown`](FenceError::Unknown).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the operations may be done or not, all or none.
    pub async fn commit(self) -> Result<(), FenceError> {
        let session = self.leases.link.session().await?;
        let guard = guard(&session, &self.key, self.token).await?;
        let written = send(&session, &guard, &self.operations)?.await;
        written.map_err(|error| match error {
            MultiWriteError::OperationFailed { index: 0, .. } => FenceError::Fenced(self.token),
            MultiWriteError::OperationFailed { index, source } => FenceError::Refused {
                at: index - 1,
                why: refusal(&session.hosts, &source),
            },
            MultiWriteError::RequestFailed { source } => {
                FenceError::Unknown(store(&session.hosts, &source))
            }
        })
    }
}

/// Sends the operations, behind the check of the grant.
fn send<'a>(
    session: &'a Session,
    guard: &str,
    operations: &[Operation],
) -> Result<impl Future<Output = Result<(), MultiWriteError>> + use<'a>, FenceError> {
    let mut writer = session.client.new_multi_writer();
    let checked = writer.add_check_version(guard, 0);
    checked.map_err(|error| store(&session.hosts, &error))?;
    for (at, operation) in operations.iter().enumerate() {
        let added = add(&mut writer, session, operation);
        added.map_err(|error| FenceError::Refused {
            at,
            why: refusal(&session.hosts, &error),
        })?;
    }
    let written = writer.commit();
    Ok(async move { written.await.map(drop) })
}

fn add(
    writer: &mut MultiWriter<'_>,
    session: &Session,
    operation: &Operation,
) -> Result<(), ClientError> {
    match operation {
        Operation::Create(path, data) => {
            let options = CreateMode::Persistent.with_acls(session.acls());
            writer.add_create(path, data, &options)
        }
        Operation::Set(path, data, version) => writer.add_set_data(path, data, *version),
        Operation::Delete(path, version) => writer.add_delete(path, *version),
        Operation::Check(path, version) => writer.add_check_version(path, *version),
    }
}

/// Returns the node of the grant with this token.
async fn guard(session: &Session, key: &Bytes, token: Token) -> Result<String, FenceError> {
    if let Some(number) = session.book().number(key, token) {
        return Ok(session.paths.grant(&session.guard(number)));
    }
    // The grant of another process: this server may not have heard of it yet.
    let path = session.paths.lease(key);
    let synced = session.client.sync(&path);
    let seen = session.client.get_data(&path);
    synced
        .await
        .map_err(|error| store(&session.hosts, &error))?;
    let (data, stat) = match seen.await {
        Ok(seen) => seen,
        Err(ClientError::NoNode) => return Err(FenceError::Fenced(token)),
        Err(error) => return Err(store(&session.hosts, &error).into()),
    };
    match LeaseData::decode(&data) {
        Some(data) if stat.czxid.unsigned_abs() == token.0 => Ok(session.paths.grant(&data.guard)),
        _ => Err(FenceError::Fenced(token)),
    }
}

fn refusal(hosts: &str, error: &ClientError) -> Refusal {
    match error {
        ClientError::NoNode => Refusal::NoNode,
        ClientError::NodeExists => Refusal::NodeExists,
        ClientError::BadVersion => Refusal::Version,
        ClientError::NotEmpty => Refusal::NotEmpty,
        other => Refusal::Other(words(hosts, other)),
    }
}
