//! The errors of this crate. None of them shows a password.

use std::fmt;
use std::sync::Arc;

use etcd_client::Error as ClientError;
use keylane_connector::ErrorKind;
use keylane_connector::tls::TlsFailure;
use keylane_leases::error::StoreError;
use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::tls::{NAMES, failure_of};

/// The code of a status: its numbers are those of gRPC. The client does not name the type.
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNAUTHENTICATED: i32 = 16;

/// An error of etcd, or of the connection to it.
#[derive(Clone, Error)]
pub struct EtcdError {
    kind: ErrorKind,
    message: String,
    breaks_connection: bool,
    is_lease_missing: bool,
    /// The servers, where they are known: hosts and ports.
    place: Option<Arc<str>>,
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, .. } = self;
        match &self.place {
            Some(place) => write!(f, "etcd at {place}: {kind}: {message}"),
            None => write!(f, "{kind}: {message}"),
        }
    }
}

text_in_debug! { EtcdError }

impl EtcdError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            breaks_connection: false,
            is_lease_missing: false,
            place: None,
        }
    }

    /// Returns the error for a connection that was to have TLS.
    pub(crate) fn tls(failure: TlsFailure) -> Self {
        Self {
            breaks_connection: true,
            ..Self::new(ErrorKind::Tls(failure), failure.advice(NAMES))
        }
    }

    /// Adds the servers that have not done what was asked: their hosts and ports.
    pub(crate) fn at(self, place: &Arc<str>) -> Self {
        let place = Some(Arc::clone(place));
        Self { place, ..self }
    }

    /// Returns the error of a server that has not done what was asked.
    pub(crate) fn incomprehensible() -> Self {
        Self::new(
            ErrorKind::Other,
            "the answer is not from etcd: check the address",
        )
    }

    /// Returns the kind: what you can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    pub(crate) fn breaks_connection(&self) -> bool {
        self.breaks_connection
    }

    /// Whether etcd does not know the lease that the call named: it has run out, or was revoked.
    pub(crate) fn is_lease_missing(&self) -> bool {
        self.is_lease_missing
    }
}

impl From<ClientError> for EtcdError {
    fn from(error: ClientError) -> Self {
        if let Some(failure) = failure_of(&error) {
            return Self::tls(failure);
        }
        let (kind, breaks_connection) = match &error {
            ClientError::GRpcStatus(status) => kind_of(i32::from(status.code()), status.message()),
            ClientError::InvalidArgs(_) | ClientError::InvalidUri(_) => (ErrorKind::Address, true),
            // The only one of them that speaks of the lease and not of the stream.
            ClientError::LeaseKeepAliveError(why) if why == "lease not found" => {
                (ErrorKind::Other, false)
            }
            ClientError::InvalidMetadataValue(_) => (ErrorKind::Denied, true),
            _ => (ErrorKind::Unreachable, true),
        };
        let is_lease_missing = match &error {
            ClientError::GRpcStatus(status) => {
                i32::from(status.code()) == NOT_FOUND
                    && status.message().contains("lease not found")
            }
            ClientError::LeaseKeepAliveError(why) => why == "lease not found",
            _ => false,
        };
        let mut message = match &error {
            ClientError::GRpcStatus(status) => status.message().to_owned(),
            error => error.to_string(),
        };
        if let Some(advice) = advice(&message) {
            message = format!("{message}: {advice}");
        }
        Self {
            kind,
            message,
            breaks_connection,
            is_lease_missing,
            place: None,
        }
    }
}

impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> Self {
        Self::new(error.to_string())
    }
}

/// Returns the kind of a status, and whether its connection is of no use any more.
fn kind_of(code: i32, message: &str) -> (ErrorKind, bool) {
    let says = |text: &str| message.contains(text);
    match code {
        PERMISSION_DENIED => (ErrorKind::Denied, false),
        // A connection whose user has changed its password must begin again.
        UNAUTHENTICATED => (ErrorKind::Denied, true),
        _ if says("authentication failed") || says("auth token") || says("user name is empty") => {
            (ErrorKind::Denied, true)
        }
        _ if says("database space exceeded") || says("too many requests") => {
            (ErrorKind::Unable, false)
        }
        _ if says("request is too large") || says("too many operations") => {
            (ErrorKind::TooLarge, false)
        }
        // The server has lost its leader, or was slow: nothing is wrong with the connection, but
        // another server may do better.
        _ if message.starts_with("etcdserver:") && is_passing(message) => {
            (ErrorKind::Unreachable, true)
        }
        _ if message.starts_with("etcdserver:") => (ErrorKind::Other, false),
        RESOURCE_EXHAUSTED => (ErrorKind::TooLarge, false),
        _ => (ErrorKind::Unreachable, true),
    }
}

/// Returns whether this text of a server is about a state that passes.
fn is_passing(message: &str) -> bool {
    [
        "no leader",
        "timed out",
        "leader changed",
        "stopped",
        "not capable",
        "unhealthy",
    ]
    .iter()
    .any(|text| message.contains(text))
}

/// Returns what to do about an error of the server that does not say it.
fn advice(message: &str) -> Option<&'static str> {
    [
        (
            "too many operations",
            "set `EtcdLeases::operations` to the server's `--max-txn-ops`",
        ),
        (
            "permission denied",
            "give the user's role the right to read and write the keys of the namespace",
        ),
        ("user name is empty", "name a user with `Etcd::options`"),
        (
            "authentication failed",
            "correct the user and the password in `Etcd::options`",
        ),
        (
            "database space exceeded",
            "compact and defragment etcd, raise `--quota-backend-bytes`, and disarm the alarm",
        ),
    ]
    .iter()
    .find_map(|(text, advice)| message.contains(text).then_some(*advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceError;

    #[test]
    fn errors_show_their_text() {
        let token = keylane_leases::Token(7);
        let denied = || EtcdError::new(ErrorKind::Denied, "permission denied");
        keylane_testkit::error_texts! {
            EtcdError => denied(), denied().at(&"localhost:2379".into()), EtcdError::incomprehensible();
            FenceError => FenceError::Fenced { token }, FenceError::Etcd(denied());
        }
    }

    #[test]
    fn errors_of_the_server_have_their_kinds() {
        let kinds = [
            (7, "etcdserver: permission denied", ErrorKind::Denied),
            (
                3,
                "etcdserver: authentication failed, invalid user ID or password",
                ErrorKind::Denied,
            ),
            (16, "etcdserver: invalid auth token", ErrorKind::Denied),
            (3, "etcdserver: user name is empty", ErrorKind::Denied),
            (
                8,
                "etcdserver: mvcc: database space exceeded",
                ErrorKind::Unable,
            ),
            (3, "etcdserver: request is too large", ErrorKind::TooLarge),
            (
                3,
                "etcdserver: too many operations in txn request",
                ErrorKind::TooLarge,
            ),
            (14, "etcdserver: leader changed", ErrorKind::Unreachable),
            (14, "etcdserver: request timed out", ErrorKind::Unreachable),
            (9, "etcdserver: lease already exists", ErrorKind::Other),
            (14, "tcp connect error", ErrorKind::Unreachable),
        ];
        for (code, message, kind) in kinds {
            assert_eq!(kind_of(code, message).0, kind, "{message}");
        }
    }
}
