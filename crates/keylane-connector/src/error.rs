//! Errors of settings, and the kinds of errors of servers.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::tls::TlsFailure;

/// The kind of an error of a server: what you can do about it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The address is not valid.
    Address,
    /// The server cannot be reached, has not answered in time, or is starting. Try again: a call
    /// that was in progress may have been executed.
    Unreachable,
    /// The server cannot execute the call now: it is busy, has no memory or disk left, a part of it
    /// is down, or a time limit of its own or an operator has ended the call. Nothing was done. Try
    /// again.
    Unable,
    /// The call conflicts with another one. Nothing was done. Try again.
    Conflict,
    /// The server takes no writes now: it is a replica, or was one when the session began. Nothing
    /// was done. Try again.
    ReadOnly,
    /// The server refuses the user or the password, or the user has no right to this.
    Denied,
    /// TLS fails: a certificate, or whether there is TLS at all. An operator must mend it.
    Tls(TlsFailure),
    /// The value is too large for the server.
    TooLarge,
    /// A database, a schema or a table is missing.
    Missing,
    /// A key has a value of another type than expected.
    WrongType,
    /// Any other error.
    Other,
}

impl ErrorKind {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Unable | Self::Conflict | Self::ReadOnly
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "the address is not valid",
            Self::Unreachable => "the server cannot be reached",
            Self::Unable => "the server cannot execute the call now",
            Self::Conflict => "the call conflicts with another one",
            Self::ReadOnly => "the server is read-only",
            Self::Denied => "the server refuses the user",
            Self::Tls(failure) => return write!(f, "no TLS: {failure}"),
            Self::TooLarge => "the value is too large for the server",
            Self::Missing => "a database, schema or table is missing",
            Self::WrongType => "a key has another type",
            Self::Other => "the server reports an error",
        })
    }
}

/// An error in the settings of a connector. It shows no password.
///
/// ```
/// use keylane_connector::ConfigError;
///
/// let error = ConfigError::zero("lease");
/// assert_eq!(error.setting(), "lease");
/// assert_eq!(error.to_string(), "`lease` must not be zero");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    setting: Cow<'static, str>,
    why: Cow<'static, str>,
}

impl ConfigError {
    /// Returns the error for a setting. The text goes on behind its name: what is wrong, and what
    /// to do.
    pub fn new(setting: impl Into<Cow<'static, str>>, why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            setting: setting.into(),
            why: why.into(),
        }
    }

    /// Returns the error for a number or a time that is zero.
    pub fn zero(setting: &'static str) -> Self {
        Self::new(setting, "must not be zero")
    }

    /// Returns the name of the setting.
    pub fn setting(&self) -> &str {
        &self.setting
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, why } = self;
        write!(f, "`{setting}` {why}")
    }
}

keylane_rt::text_in_debug! { ConfigError }

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_their_text() {
        keylane_testkit::error_texts! {
            ConfigError => ConfigError::zero("lease"), ConfigError::new("group", "is empty");
        }
    }
}
