//! Errors, none of which shows a password.

use std::fmt;

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use thiserror::Error;

/// Why a name is refused.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[error(
    "{name:?} is no name for tables: use A-Z, a-z, 0-9 and _, begin with no digit, and take at most {most} bytes"
)]
pub struct NameError {
    pub(crate) name: String,
    pub(crate) most: usize,
}

/// Why the tables cannot be used.
#[non_exhaustive]
#[derive(Error, Debug, Clone)]
pub enum OpenError {
    /// The tables were made by a newer version of this crate.
    #[error(
        "the tables are of version {found}, and this program knows {known}: use a newer program"
    )]
    Newer {
        /// Of the tables.
        found: u32,
        /// Of this program.
        known: u32,
    },
    /// The tables are not there, or are of an older version.
    #[error("{}", older(*found, *needed))]
    Older {
        /// Of the tables; 0 if there are none.
        found: u32,
        /// Of this program.
        needed: u32,
    },
    /// What the database says.
    #[error(transparent)]
    Sql(#[from] SqlError),
}

fn older(found: u32, needed: u32) -> String {
    match found {
        0 => {
            "there are no tables of keylane under this prefix and in this schema: is it the right \
            database? `Database::migrate` makes them, and `keylane-inbox migrate`"
                .to_owned()
        }
        _ => format!(
            "the tables are of version {found}, and this program needs {needed}: migrate them first"
        ),
    }
}

/// Why a handler's transaction was not committed.
#[non_exhaustive]
#[derive(Error, Debug, Clone)]
pub enum CommitError {
    /// The claim has ended, and nothing was committed: another worker handles the message.
    #[error(
        "the claim of this key has ended, and nothing was committed: return an error, another worker handles the message"
    )]
    Lost,
    /// What the database says.
    #[error(transparent)]
    Sql(#[from] SqlError),
}

/// What a database, or the way to it, says.
#[derive(Debug, Clone, Error)]
#[error("{kind}: {message}")]
pub struct SqlError {
    kind: ErrorKind,
    message: String,
}

/// What can be done about a [`SqlError`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The address is none.
    Address,
    /// The database cannot be reached now. Try again.
    Unreachable,
    /// The transaction was in the way of another one. Try again.
    Conflict,
    /// A table, or its schema, is missing.
    Missing,
    /// Anything else.
    Other,
}

impl SqlError {
    pub(crate) fn address(scheme: &str) -> Self {
        // The address itself may have a password in it.
        let message = format!(
            "an address begins with postgres://, postgresql://, mysql:// or mariadb://, this one with {scheme:?}"
        );
        Self {
            kind: ErrorKind::Address,
            message,
        }
    }

    pub(crate) fn unreadable_address() -> Self {
        Self {
            kind: ErrorKind::Address,
            message: "it is not of the form postgres://user:password@host:port/database; in the user and \
                the password, @ is written %40, : %3A, / %2F, # %23, ? %3F and % %25"
                .to_owned(),
        }
    }

    /// A row that is not what was written.
    pub(crate) fn damaged(sequence: u64) -> Self {
        Self {
            kind: ErrorKind::Other,
            message: format!("the row of message {sequence} is not what was written"),
        }
    }

    pub(crate) fn timed_out() -> Self {
        Self {
            kind: ErrorKind::Unreachable,
            message: "it has not answered in time".to_owned(),
        }
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may go well later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Conflict)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "the address of the database",
            Self::Unreachable => "the database cannot be reached",
            Self::Conflict => "the database has given way to another transaction",
            Self::Missing => "something is missing in the database",
            Self::Other => "the database",
        })
    }
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let kind = match &error {
            E::Database(error) if is_lock_wait(&**error) => ErrorKind::Conflict,
            E::Database(error) => kind_of(error.code().as_deref().unwrap_or_default()),
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => {
                ErrorKind::Unreachable
            }
            // A connection that was cut in the middle of an answer.
            E::Protocol(_) | E::BeginFailed => ErrorKind::Unreachable,
            _ => ErrorKind::Other,
        };
        let message = match &error {
            E::Database(error) => error.message().to_owned(),
            // It quotes the address.
            E::Configuration(_) => "its address is not understood".to_owned(),
            error => error.to_string(),
        };
        Self { kind, message }
    }
}

/// MySQL and MariaDB have no characters of the standard for a wait for a lock that took too long, or
/// that was not wanted.
fn is_lock_wait(error: &dyn DatabaseError) -> bool {
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.is_some_and(|error| matches!(error.number(), 1205 | 3572))
}

/// By the five characters of the SQL standard; both databases have them.
fn kind_of(code: &str) -> ErrorKind {
    match code {
        // Serialization failure, deadlock, lock not available, statement cancelled by its time limit.
        "40001" | "40P01" | "55P03" | "57014" => ErrorKind::Conflict,
        // Shut down, crashed, starting, terminated by an operator; too many connections.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "08004" => ErrorKind::Unreachable,
        code if code.starts_with("08") => ErrorKind::Unreachable,
        // Undefined table or schema.
        "42P01" | "3F000" | "42S02" => ErrorKind::Missing,
        _ => ErrorKind::Other,
    }
}
