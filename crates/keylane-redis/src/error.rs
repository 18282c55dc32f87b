//! The errors of this crate. None of them shows a password.

use std::fmt;
use std::sync::Arc;

use keylane_connector::ErrorKind;
use keylane_connector::tls::TlsFailure;
use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::tls::NAMES;

/// An error of a server, or of the connection to it.
#[derive(Clone, Error)]
pub struct RedisError {
    kind: ErrorKind,
    message: String,
    connection: Connection,
    /// The server, where it is known: host, port, and the number of the database if it is not 0.
    place: Option<Arc<str>>,
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, .. } = self;
        match &self.place {
            Some(place) => write!(f, "Redis at {place}: {kind}: {message}"),
            None => write!(f, "{kind}: {message}"),
        }
    }
}

text_in_debug! { RedisError }

/// What an error says about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Works,
    /// It is of no use any more.
    Useless,
    /// It was closed.
    Dropped,
    /// The other end has said something that is not of the protocol.
    Garbled,
}

impl RedisError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            connection: Connection::Works,
            place: None,
        }
    }

    /// Returns the error for a connection that was to have TLS.
    pub(crate) fn tls(failure: TlsFailure) -> Self {
        Self {
            connection: Connection::Useless,
            ..Self::new(ErrorKind::Tls(failure), failure.advice(NAMES))
        }
    }

    /// Adds the server that has not done what was asked, unless it is named already.
    pub(crate) fn at(mut self, place: &Arc<str>) -> Self {
        self.place.get_or_insert_with(|| Arc::clone(place));
        self
    }

    /// Returns the error of a connection that was not made. A server of Redis answers, unless it
    /// stops or has no room; what says something else is hardly one.
    pub(crate) fn at_first(mut self) -> Self {
        let what = match self.connection {
            Connection::Dropped => {
                "the connection was closed without an answer: the server may be stopping, have no \
                 room (`maxclients`), want TLS (`rediss://`), or not be Redis"
            }
            Connection::Garbled => {
                "the answer is not of the protocol of Redis: correct the address, or write \
                 `rediss://` if the server wants TLS"
            }
            Connection::Works | Connection::Useless => return self,
        };
        self.message = format!("{what} ({})", self.message);
        self
    }

    /// Returns the kind: what you can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Whether a server is away: it may come back, or an operator mends its certificate.
    pub(crate) fn is_away(&self) -> bool {
        self.is_retryable() || matches!(self.kind, ErrorKind::Tls(_))
    }

    pub(crate) fn breaks_connection(&self) -> bool {
        self.connection != Connection::Works
    }

    /// Whether the connection was closed. The command may have been executed.
    pub(crate) fn is_dropped(&self) -> bool {
        self.connection == Connection::Dropped
    }
}

impl From<redis::RedisError> for RedisError {
    fn from(error: redis::RedisError) -> Self {
        use redis::ErrorKind as K;
        if let Some(failure) = failure_of(&error) {
            return Self::tls(failure);
        }
        // Of several commands, the first one that failed gives the reason.
        let answers = error.clone().into_server_errors();
        let answer = answers.as_ref().and_then(|answers| answers.first());
        let answer = answer.map(|(_, answer)| answer);
        let code = answer.map(|answer| answer.code()).or(error.code());
        let says = |text: &str| {
            let details = answer.and_then(|answer| answer.details());
            details.is_some_and(|details| details.contains(text))
        };
        // An error inside a script has a text of its own. That of Redis 7.0 is another one.
        let is_denied_in_script =
            says("ACL failure in script") || says("The user executing the script can't");
        let kind = match (code, error.kind()) {
            (Some("ERR"), _) if says("invalid bulk length") => ErrorKind::TooLarge,
            (Some("ERR"), _) if is_denied_in_script => ErrorKind::Denied,
            (Some(code), _) => kind_of(code),
            (_, K::Io | K::ClusterConnectionNotFound | K::Parse) => ErrorKind::Unreachable,
            (_, K::MasterNameNotFoundBySentinel) => ErrorKind::Unreachable,
            (_, K::InvalidClientConfig) => ErrorKind::Address,
            (_, K::AuthenticationFailed) => ErrorKind::Denied,
            _ if error.is_timeout() || error.is_connection_dropped() => ErrorKind::Unreachable,
            _ => ErrorKind::Other,
        };
        let mut message = match answer {
            // The error of several commands repeats the reason for each of them.
            Some(answer) => format!("{} {}", answer.code(), answer.details().unwrap_or_default()),
            None => error.to_string(),
        };
        // While it connects, the client has an error of its own in the place of the server's.
        let word = match error.kind() {
            K::AuthenticationFailed => Some("WRONGPASS"),
            _ if is_denied_in_script => Some("NOPERM"),
            _ => code,
        };
        if let Some(advice) = word.and_then(advice) {
            message = format!("{}: {advice}", message.trim_end());
        }
        let connection = match code {
            // It is also of no use with a replica that was a primary, or with a server that does
            // not know the user of the connection.
            Some("READONLY" | "LOADING" | "NOAUTH") => Connection::Useless,
            Some(_) => Connection::Works,
            None if error.kind() == K::Parse => Connection::Garbled,
            None if error.is_connection_dropped() && !error.is_connection_refusal() => {
                Connection::Dropped
            }
            // After a time-out it may be silent for good.
            None => Connection::Useless,
        };
        Self {
            kind,
            message,
            connection,
            place: None,
        }
    }
}

#[cfg(feature = "tls")]
fn failure_of(error: &redis::RedisError) -> Option<TlsFailure> {
    TlsFailure::of(error)
}

/// Without TLS nothing fails because of it.
#[cfg(not(feature = "tls"))]
fn failure_of(_: &redis::RedisError) -> Option<TlsFailure> {
    None
}

/// Returns what to do about an error with this first word, where the server does not say it.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "MOVED" => {
            "this server is a node of a cluster, and the key is on another one: use \
             `Redis::cluster`"
        }
        "NOAUTH" => "write the password into the address: redis://:password@host:port",
        "WRONGPASS" => {
            "correct the user and the password in the address: redis://user:password@host:port"
        }
        "NOPERM" => "give the user the right with `ACL SETUSER`",
        _ => return None,
    })
}

/// Returns the kind of an error by the first word of the server's message.
fn kind_of(code: &str) -> ErrorKind {
    match code {
        "LOADING" => ErrorKind::Unreachable,
        "BUSY" | "OOM" | "MISCONF" | "READONLY" | "NOREPLICAS" | "MASTERDOWN" | "CLUSTERDOWN"
        | "TRYAGAIN" | "MOVED" | "ASK" | "UNKILLABLE" => ErrorKind::Unable,
        "NOAUTH" | "NOPERM" | "WRONGPASS" | "DENIED" => ErrorKind::Denied,
        "WRONGTYPE" => ErrorKind::WrongType,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{FenceError, NoEntryId, TryAcquireError};

    #[test]
    fn errors_show_their_text() {
        let denied =
            || RedisError::new(ErrorKind::Denied, "NOPERM").at(&"Redis at localhost:6379".into());
        keylane_testkit::error_texts! {
            RedisError => denied(), RedisError::tls(TlsFailure::NoTls);
            TryAcquireError =>
                TryAcquireError::NotYet { after: Duration::from_secs(1) },
                TryAcquireError::Redis(denied());
            FenceError => FenceError::Fenced, FenceError::Redis(denied());
            NoEntryId => NoEntryId;
        }
    }
}
