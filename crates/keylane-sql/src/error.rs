//! Errors, none of which shows a password.

use std::fmt;
use std::sync::Arc;

pub use keylane_connector::ErrorKind;
pub use keylane_connector::tls::TlsFailure;
use keylane_connector::tls::TlsNames;
use keylane_leases::Token;
use keylane_rt::text_in_debug;
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use thiserror::Error;

/// A name that is not valid.
#[derive(Error, Clone, PartialEq, Eq)]
#[error(
    "{name:?} is not a valid name for tables: use A-Z, a-z, 0-9 and _, do not begin with a \
     digit, and use at most {most} bytes"
)]
pub struct NameError {
    pub(crate) name: String,
    pub(crate) most: usize,
}

text_in_debug! { NameError }

/// The reason why the tables cannot be used.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum OpenError {
    /// A newer version of this crate made the tables.
    #[error(
        "the tables have version {found}, but this program knows only {known}: use a newer \
         version of it"
    )]
    Newer {
        /// The version of the tables.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// The tables do not exist, or have an older version.
    #[error("{}", older(*found, *needed))]
    Older {
        /// The version of the tables; 0 if there are none.
        found: u32,
        /// The version of this program.
        needed: u32,
    },
    /// The sessions of the pool have a variable with which nothing works, or data is lost.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A pooler in front of PostgreSQL lends one session to several clients, and does not track
    /// prepared statements. A client would execute the statement of another one. Also returned if a
    /// prepared statement of the pool is missing in its session, or another one has its name there.
    #[error(
        "a pooler lends the sessions of this database to several clients, and does not track \
         prepared statements: set `pool_mode = session`, or use PgBouncer 1.21 or newer with \
         `max_prepared_statements` above 0 and the statement cache of sqlx, or connect to the \
         server itself"
    )]
    SharedSessions,
    /// The database reports an error.
    #[error(transparent)]
    Sql(SqlError),
}

impl From<SqlError> for OpenError {
    fn from(error: SqlError) -> Self {
        match error.mixes_statements {
            true => Self::SharedSessions,
            false => Self::Sql(error),
        }
    }
}

text_in_debug! { OpenError: Newer, Older, Setting, SharedSessions, Sql }

/// A variable of a session with a value that cannot be used.
#[derive(Error, Clone, PartialEq, Eq)]
#[error(
    "the sessions of this pool have {variable} = {value:?}: {why} when a connection is made \
     (`after_connect`), or use `Database::connect`, which does that"
)]
pub struct SettingError {
    pub(crate) variable: &'static str,
    pub(crate) value: String,
    pub(crate) why: &'static str,
}

text_in_debug! { SettingError }

impl SettingError {
    /// Returns the name of the variable.
    pub fn variable(&self) -> &str {
        self.variable
    }
}

fn older(found: u32, needed: u32) -> String {
    match found {
        0 => "there are no keylane tables with this prefix in this schema: check the address of \
             the database, or create the tables with `Database::migrate` or `keylane inbox \
             migrate`"
            .to_owned(),
        _ => format!(
            "the tables have version {found}, but this program needs {needed}: migrate them first"
        ),
    }
}

/// The reason why the transaction of a handler was not committed.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum CommitError {
    /// The claim has ended, and nothing was committed: another worker handles the message.
    #[error(
        "the claim of this key has ended, so nothing was committed: return an error; another \
         worker handles the message"
    )]
    Lost,
    /// The database reports an error.
    #[error(transparent)]
    Sql(#[from] SqlError),
}

text_in_debug! { CommitError: Lost, Sql }

/// The reason why a transaction may not write for a term.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum FenceError {
    /// Another term is the last one of the election, or the term has ended, or the database has
    /// another history: nothing may be written.
    #[error("{}", fenced(*token, *last))]
    Fenced {
        /// The token of the term for which the transaction was to write.
        token: Token,
        /// The token of the last term; `None` if there is none. It may be the same, in another
        /// history, or of a term that has ended.
        last: Option<Token>,
    },
    /// The database reports an error.
    #[error(transparent)]
    Sql(#[from] SqlError),
}

text_in_debug! { FenceError: Fenced, Sql }

fn fenced(token: Token, last: Option<Token>) -> String {
    let last = last.map_or("none".to_owned(), |last| last.to_string());
    format!(
        "the term of token {token} may not write (the last recorded one has {last}): roll the \
         transaction back, and stop leading"
    )
}

/// An error of the database, or of the connection to it.
#[derive(Clone, Error)]
pub struct SqlError {
    kind: ErrorKind,
    message: String,
    /// The database, where it is known: its kind, host, port and name.
    place: Option<Arc<str>>,
    /// A prepared statement is missing in its session, or is there already: another client has the
    /// session too.
    mixes_statements: bool,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, .. } = self;
        match &self.place {
            Some(place) => write!(f, "{place}: {kind}: {message}"),
            None => write!(f, "{kind}: {message}"),
        }
    }
}

text_in_debug! { SqlError }

impl SqlError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            place: None,
            mixes_statements: false,
        }
    }

    pub(crate) fn address(scheme: &str) -> Self {
        // The address itself may contain a password.
        let message = format!(
            "it must begin with postgres://, postgresql://, mysql:// or mariadb://, but begins \
             with {scheme:?}"
        );
        Self::new(ErrorKind::Address, message)
    }

    pub(crate) fn unreadable_address() -> Self {
        Self::new(
            ErrorKind::Address,
            "it must have the form postgres://user:password@host:port/database, or with several \
             hosts: first:5432,second:5432; in the user and the password, write @ as %40, : as \
             %3A, / as %2F, # as %23, ? as %3F and % as %25",
        )
    }

    /// Returns the error for a file of certificates.
    pub(crate) fn unreadable_file(parameter: &str, error: &std::io::Error) -> Self {
        let message = format!("`{parameter}` names a file that cannot be read: {error}");
        Self::new(ErrorKind::Address, message)
    }

    /// Returns the error for servers that take no writes.
    pub(crate) fn attributes() -> Self {
        Self::new(
            ErrorKind::Address,
            "`target_session_attrs` must be `read-write` or `primary`",
        )
    }

    /// Returns the error for a row that differs from what this crate writes.
    pub(crate) fn damaged(sequence: u64) -> Self {
        Self::new(
            ErrorKind::Other,
            format!("the row of message {sequence} differs from what was written"),
        )
    }

    pub(crate) fn read_only(why: &str) -> Self {
        Self::new(
            ErrorKind::ReadOnly,
            format!(
                "{why}; promote it, set `default_transaction_read_only` or `read_only` to off, or \
                 connect to the primary"
            ),
        )
    }

    pub(crate) fn other(message: &str) -> Self {
        Self::new(ErrorKind::Other, message)
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(ErrorKind::Unreachable, "no answer in time")
    }

    /// Adds the database that has not done what was asked.
    pub(crate) fn at(mut self, named: impl FnOnce() -> String) -> Self {
        self.place.get_or_insert_with(|| named().into());
        self
    }

    /// Returns what to do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Returns whether nothing was done and the same call may succeed at once.
    pub(crate) fn is_made_again(&self) -> bool {
        matches!(self.kind, ErrorKind::Conflict | ErrorKind::Unable)
    }
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        if let Some(failure) = failure_of(&error) {
            return Self::new(ErrorKind::Tls(failure), failure.advice(NAMES));
        }
        let kind = match &error {
            E::Database(error) => kind_of(&**error),
            E::Io(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => ErrorKind::Unreachable,
            // What is in the files of certificates.
            E::Tls(_) => ErrorKind::Address,
            // A connection that was cut in the middle of an answer.
            E::Protocol(_) | E::BeginFailed => ErrorKind::Unreachable,
            _ => ErrorKind::Other,
        };
        let message = match &error {
            E::Database(error) if kind == ErrorKind::ReadOnly => {
                return Self::read_only(error.message());
            }
            E::Database(_) if mixes_statements(&error) => {
                return Self {
                    mixes_statements: true,
                    ..Self::new(kind, format!("{error}; {BY_A_POOLER}"))
                };
            }
            E::Database(error) => match advice(&**error) {
                Some(advice) => format!("{}: {advice}", error.message()),
                None => error.message().to_owned(),
            },
            E::Tls(error) => format!(
                "{error}: correct the files that `ssl-ca`, `ssl-cert` and \
                                      `ssl-key` name"
            ),
            E::PoolTimedOut => "no connection in time: the whole pool is in use, or no server of \
                                this kind answers at this port"
                .to_owned(),
            // It quotes the address.
            E::Configuration(_) => "its address is not valid".to_owned(),
            error => error.to_string(),
        };
        Self::new(kind, message)
    }
}

const NAMES: TlsNames = TlsNames {
    authority: "`ssl-ca` in the address",
    identity: "`ssl-cert` and `ssl-key` in the address",
    with: "write `sslmode=verify-full` (PostgreSQL) or `ssl-mode=VERIFY_IDENTITY` into the address",
    without: "write `sslmode=disable` (PostgreSQL) or `ssl-mode=DISABLED` into the address",
};

/// Returns why there is no connection with TLS, if the error is about that.
fn failure_of(error: &sqlx::Error) -> Option<TlsFailure> {
    use sqlx::Error as E;
    match error {
        E::Io(error) => TlsFailure::of(error),
        E::Tls(error) if error.to_string().contains("does not support TLS") => {
            Some(TlsFailure::NoTls)
        }
        E::Tls(error) => TlsFailure::of(&**error),
        E::Database(error) => said(error.message()),
        _ => None,
    }
}

/// Returns what a server says in the first answer of a session.
fn said(message: &str) -> Option<TlsFailure> {
    [
        // PostgreSQL, by `pg_hba.conf`.
        (", no encryption", TlsFailure::OnlyTls),
        (
            "connection requires a valid client certificate",
            TlsFailure::ClientCertificate,
        ),
        // MySQL, by `require_secure_transport`.
        ("insecure transport are prohibited", TlsFailure::OnlyTls),
    ]
    .into_iter()
    .find_map(|(text, failure)| message.contains(text).then_some(failure))
}

/// Returns what to do about an error that a new user gets first, or that an operator causes.
fn advice(error: &dyn DatabaseError) -> Option<&'static str> {
    match (number_of(error), error.code().as_deref()) {
        (Some(1049), _) | (None, Some("3D000")) => {
            Some("create it, or correct its name in the address")
        }
        // MariaDB says the same to a connection without TLS that should have it.
        (Some(1045), _) => Some(
            "correct the user and the password in the address, or write \
             `ssl-mode=VERIFY_IDENTITY` into it if the server requires TLS",
        ),
        (None, Some("28P01" | "28000")) => Some("correct the user and the password in the address"),
        (Some(1044 | 1142), _) | (None, Some("42501")) => Some(
            "grant the right: `migrate` makes tables, and a service reads, inserts, updates and \
             deletes in them",
        ),
        (Some(1146), _) | (None, Some("42P01" | "3F000")) => Some(
            "create the tables with `Database::migrate` or `keylane inbox migrate`, or correct \
             the schema and the prefix in `Tables`",
        ),
        _ => None,
    }
}

/// What mixes prepared statements up after the check that finds [`OpenError::SharedSessions`].
const BY_A_POOLER: &str = "if PgBouncer is between, it must have `pool_mode = session`";

/// Returns whether a prepared statement of PostgreSQL is missing in its session, or is there
/// already.
pub(crate) fn mixes_statements(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| matches!(&*code, "26000" | "42P05"))
}

/// Returns whether an error concerns the session and not only the statement: the next statement on
/// this connection would fail as well.
pub(crate) fn is_of_session(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        // The next answer of the server is not known.
        return true;
    };
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>()
        && matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
    {
        return true;
    }
    if let Some(number) = number_of(&**error)
        && (OF_READ_ONLY.contains(&number) || OF_ENDED.contains(&number) || number == IDLE)
    {
        return true;
    }
    error.code().is_some_and(|code| is_code_of_session(&code))
}

/// Codes for connections, for the state of a transaction, for prepared statements that are missing,
/// and for sessions that an operator ended, whatever the rest of the code is.
fn is_code_of_session(code: &str) -> bool {
    let classes = ["08", "25", "26", "57P"];
    classes.iter().any(|class| code.starts_with(class))
}

/// Returns the error number of MySQL or MariaDB. The five characters of the standard do not suffice
/// there.
fn number_of(error: &dyn DatabaseError) -> Option<u16> {
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.map(MySqlDatabaseError::number)
}

/// `read_only` of the server, of InnoDB, and of the transaction.
const OF_READ_ONLY: [u16; 3] = [1290, 1836, 1792];

/// The server shuts down, the connection was killed, is gone or was lost, or a packet of it.
const OF_ENDED: [u16; 8] = [1053, 1927, 2006, 2013, 1158, 1159, 1160, 1161];

/// The session was idle for too long.
const IDLE: u16 = 4031;

fn kind_of(error: &dyn DatabaseError) -> ErrorKind {
    match number_of(error) {
        Some(number) if OF_READ_ONLY.contains(&number) => return ErrorKind::ReadOnly,
        Some(number) if OF_ENDED.contains(&number) => return ErrorKind::Unreachable,
        // A wait for a lock that took too long, or that was not wanted; a statement that took too
        // long, in MySQL and in MariaDB, or was killed.
        Some(1205 | 3572 | 3024 | 1969 | 1317 | IDLE) => return ErrorKind::Unable,
        // No such database.
        Some(1049) => return ErrorKind::Missing,
        // The user has too many connections.
        Some(1203) => return ErrorKind::Unreachable,
        // No right to a database, a table or a column; a wrong password.
        Some(1044 | 1045 | 1142 | 1143 | 1227 | 1370) => return ErrorKind::Denied,
        _ => {}
    }
    by_code(error.code().as_deref().unwrap_or_default())
}

/// Finds the kind by the five characters of the SQL standard, which both databases have.
fn by_code(code: &str) -> ErrorKind {
    match code {
        // Serialization failure, deadlock.
        "40001" | "40P01" => ErrorKind::Conflict,
        // Lock not available, statement cancelled by its time limit; sessions ended by their time
        // limits: idle in a transaction, in a transaction at all, idle. A prepared statement that
        // is missing.
        "55P03" | "57014" | "25P03" | "25P04" | "57P05" | "26000" => ErrorKind::Unable,
        "25006" => ErrorKind::ReadOnly,
        // Shut down, crashed, starting, its database dropped; too many connections.
        "57P01" | "57P02" | "57P03" | "57P04" | "53300" => ErrorKind::Unreachable,
        code if code.starts_with("08") => ErrorKind::Unreachable,
        // No right; no such role, or a wrong password.
        "42501" | "28000" | "28P01" => ErrorKind::Denied,
        // Undefined table, schema or database.
        "42P01" | "3F000" | "42S02" | "3D000" => ErrorKind::Missing,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_their_text() {
        let (name, value) = ("a-b".to_owned(), "on".to_owned());
        let setting = SettingError {
            variable: "autocommit",
            value,
            why: "set it",
        };
        let token = Token(7);
        keylane_testkit::error_texts! {
            NameError => NameError { name, most: 20 };
            SettingError => setting.clone();
            OpenError =>
                OpenError::Newer { found: 9, known: 1 },
                OpenError::Older { found: 0, needed: 1 },
                OpenError::Older { found: 1, needed: 2 },
                OpenError::Setting(setting),
                OpenError::SharedSessions,
                OpenError::Sql(SqlError::timed_out());
            CommitError => CommitError::Lost, CommitError::Sql(SqlError::timed_out());
            FenceError =>
                FenceError::Fenced { token, last: None },
                FenceError::Sql(SqlError::timed_out());
            SqlError => SqlError::timed_out().at(|| "PostgreSQL at localhost:5432".to_owned()), SqlError::unreadable_address();
        }
    }

    #[test]
    fn codes_say_what_can_be_done_and_whether_the_session_goes_on() {
        use ErrorKind as K;
        let codes = [
            ("25006", K::ReadOnly, true),
            ("57P01", K::Unreachable, true),
            ("57P02", K::Unreachable, true),
            ("57P03", K::Unreachable, true),
            ("57P04", K::Unreachable, true),
            ("57P05", K::Unable, true),
            ("25P03", K::Unable, true),
            ("08006", K::Unreachable, true),
            ("08S01", K::Unreachable, true),
            ("26000", K::Unable, true),
            ("25P02", K::Other, true),
            ("57014", K::Unable, false),
            ("55P03", K::Unable, false),
            ("40001", K::Conflict, false),
            ("40P01", K::Conflict, false),
            ("42P01", K::Missing, false),
            ("42501", K::Denied, false),
            ("23505", K::Other, false),
            ("", K::Other, false),
        ];
        for (code, kind, is_of_session) in codes {
            assert_eq!(by_code(code), kind, "{code}");
            assert_eq!(is_code_of_session(code), is_of_session, "{code}");
        }
    }
}
