//! The words of errors.

use keylane_leases::error::StoreError;
use zookeeper_client::{Error, MultiWriteError};

/// Returns the error of a store for an error of the client.
pub(crate) fn store(hosts: &str, error: &Error) -> StoreError {
    StoreError::new(words(hosts, error))
}

/// Returns what an error of the client means, and what to do.
pub(crate) fn words(hosts: &str, error: &Error) -> String {
    named(hosts, &told(error))
}

/// Returns the error of servers that cannot be reached, refuse the user, or have ended the session.
pub(crate) fn unconnected(hosts: &str, why: &str) -> StoreError {
    StoreError::new(named(hosts, why))
}

fn named(hosts: &str, why: &str) -> String {
    format!("ZooKeeper at {hosts}: {why}")
}

/// The same as [`words`], without the name of the system.
pub(crate) fn told(error: &Error) -> String {
    let advice = match error {
        Error::ConnectionLoss => "it may be done or not; the client connects again by itself",
        Error::SessionExpired | Error::ClientClosed => {
            "its leases are lost, and the next call makes a new session"
        }
        Error::NoAuth => "let the user of `digest` write below the root, and all processes use it",
        Error::AuthFailed => "correct the user and the password in `ZooKeeper::digest`",
        Error::NoHosts | Error::Timeout => "check the addresses, and whether the servers run",
        Error::QuotaExceeded => "raise the quota of the root",
        Error::InvalidAcl => "set a user with `digest` that the server accepts",
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// The failure of several operations that are done together or not at all.
#[derive(Debug)]
pub(crate) enum Failed {
    /// There is a node already that one of them makes.
    Exists,
    /// There is no node that one of them needs.
    Missing,
    /// They may be done or not.
    Unknown(Error),
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
            | MultiWriteError::RequestFailed { source } => Self::Unknown(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FenceError, Refusal};

    #[test]
    fn errors_show_their_text() {
        keylane_testkit::error_texts! {
            FenceError =>
                FenceError::Fenced(keylane_leases::Token(7)),
                FenceError::Refused { at: 1, why: Refusal::Version },
                FenceError::Unknown(StoreError::new("no answer"));
            Refusal =>
                Refusal::NoNode,
                Refusal::NodeExists,
                Refusal::Version,
                Refusal::NotEmpty,
                Refusal::Other("no quota".to_owned());
        }
    }

    #[test]
    fn errors_of_a_connection_name_the_servers_and_what_to_do() {
        let cases = [
            (Error::AuthFailed, "correct the user and the password"),
            (Error::NoHosts, "check the addresses"),
            (Error::Timeout, "check the addresses"),
        ];
        for (error, advice) in cases {
            let text = unconnected("zk-1:2181,zk-2:2181", &told(&error)).to_string();
            let start = "the lease store failed: ZooKeeper at zk-1:2181,zk-2:2181: ";
            assert!(text.starts_with(start), "{text}");
            assert!(text.contains(advice), "{text}");
            assert_eq!(text.matches("ZooKeeper at").count(), 1, "{text}");
        }
    }
}
