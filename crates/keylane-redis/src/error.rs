//! Errors, none of which shows a password.

use std::fmt;

use thiserror::Error;

/// The settings do not go together.
#[non_exhaustive]
#[derive(Error, Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// An address is missing or cannot be read.
    #[error(
        "an address is of the form redis://user:password@host:port/database, and there is no TLS; in \
         the user and the password, @ is written %40, : %3A, / %2F, # %23, ? %3F and % %25"
    )]
    Address,
    /// A name is empty.
    #[error("`{0}` needs a name that is not empty")]
    Empty(&'static str),
    /// A name has braces, and nothing between them.
    #[error(
        "`{0}` has braces in its name: have something between the first two, as in {{shop}}orders"
    )]
    Braces(&'static str),
    /// A name begins as the keys do that are made for others.
    #[error("`{0}` begins with a tag and `:keylane:`, as only keys do that keylane makes")]
    Reserved(&'static str),
    /// A number or a time is zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// A number or a time is too large.
    #[error("`{0}` is too large")]
    TooLarge(&'static str),
    /// A lease is shorter than 100 milliseconds, or longer than a day.
    #[error("`{0}` must be from 100 milliseconds to a day")]
    Lease(&'static str),
    /// Something must be set.
    #[error("set {0}")]
    Missing(&'static str),
}

/// What a server, or the way to it, says.
#[derive(Debug, Clone, Error)]
#[error("{kind}: {message}")]
pub struct RedisError {
    kind: ErrorKind,
    message: String,
    breaks_connection: bool,
}

/// What can be done about a [`RedisError`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The server cannot be reached, has not answered in time, or is loading its data. Try again: a
    /// command that was under way may have been done.
    Unreachable,
    /// The server cannot do it now: it runs a script for too long, has no memory or no disk left,
    /// is a replica, or a part of the cluster is down or moves to another node. Nothing was done.
    /// Try again.
    Unable,
    /// The user or the password is refused, or may not do this.
    Denied,
    /// The server takes nothing so large.
    TooLarge,
    /// A key holds something else than what is expected.
    WrongType,
    /// Anything else.
    Other,
}

impl RedisError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            breaks_connection: false,
        }
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may go well later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Unable)
    }

    pub(crate) fn breaks_connection(&self) -> bool {
        self.breaks_connection
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "Redis cannot be reached",
            Self::Unable => "Redis cannot do it now",
            Self::Denied => "Redis refuses the user",
            Self::TooLarge => "Redis takes nothing so large",
            Self::WrongType => "a key in Redis holds something else",
            Self::Other => "Redis",
        })
    }
}

impl From<redis::RedisError> for RedisError {
    fn from(error: redis::RedisError) -> Self {
        use redis::ErrorKind as K;
        // Of several commands, the first that has failed says why.
        let answers = error.clone().into_server_errors();
        let answer = answers.as_ref().and_then(|answers| answers.first());
        let answer = answer.map(|(_, answer)| answer);
        let code = answer.map(|answer| answer.code()).or(error.code());
        let says = |text: &str| {
            let details = answer.and_then(|answer| answer.details());
            details.is_some_and(|details| details.contains(text))
        };
        let kind = match (code, error.kind()) {
            (Some("ERR"), _) if says("invalid bulk length") => ErrorKind::TooLarge,
            // What a script does is refused in words of its own.
            (Some("ERR"), _) if says("ACL failure in script") => ErrorKind::Denied,
            (Some(code), _) => kind_of(code),
            (_, K::Io | K::ClusterConnectionNotFound | K::Parse) => ErrorKind::Unreachable,
            (_, K::AuthenticationFailed) => ErrorKind::Denied,
            _ if error.is_timeout() || error.is_connection_dropped() => ErrorKind::Unreachable,
            _ => ErrorKind::Other,
        };
        Self {
            kind,
            message: error.to_string(),
            // After a time-out the connection may be silent for good. A replica that was a primary
            // must be left as well, and one that does not know who this is.
            breaks_connection: code
                .is_none_or(|code| matches!(code, "READONLY" | "LOADING" | "NOAUTH")),
        }
    }
}

/// By the first word of what the server says.
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
