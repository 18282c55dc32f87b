//! The words of errors.

use keylane_leases::error::StoreError;
use zookeeper_client::{Error, MultiWriteError};

/// Returns the error of a store for an error of the client.
pub(crate) fn store(error: &Error) -> StoreError {
    StoreError::new(words(error))
}

/// Returns what an error of the client means, and what to do.
pub(crate) fn words(error: &Error) -> String {
    let advice = match error {
        Error::ConnectionLoss => "it may be done or not; the client connects again by itself",
        Error::SessionExpired | Error::ClientClosed => {
            "its leases are lost, and the next call makes a new session"
        }
        Error::NoAuth => "let the user of `digest` write below the root, and all processes use it",
        Error::AuthFailed => "check the user and the password",
        Error::NoHosts | Error::Timeout => "check the addresses, and whether the servers run",
        Error::QuotaExceeded => "raise the quota of the root",
        Error::InvalidAcl => "set a user with `digest` that the server accepts",
        _ => return format!("ZooKeeper: {error}"),
    };
    format!("ZooKeeper: {error}: {advice}")
}

/// The failure of several operations that are done together or not at all.
#[derive(Debug)]
pub(crate) enum Failed {
    /// There is a node already that one of them makes.
    Exists,
    /// There is no node that one of them needs.
    Missing,
    /// They may be done or not.
    Unknown(StoreError),
}

impl From<MultiWriteError> for Failed {
    fn from(error: MultiWriteError) -> Self {
        match error {
            MultiWriteError::OperationFailed {
                source: Error::NodeExists,
                ..
            } => Self::Exists,
            MultiWriteError::OperationFailed {
                source: Error::NoNode,
                ..
            } => Self::Missing,
            MultiWriteError::OperationFailed { source, .. }
            | MultiWriteError::RequestFailed { source } => Self::Unknown(store(&source)),
        }
    }
}
