//! Errors of the database, sorted by what to do about them.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use keylane_disk::Displaced;

use crate::error::{OpenError, StoreError};

/// A failure of the database or of its file.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file is open elsewhere.
    Locked,
    /// The operating system reports an error.
    Io(io::Error),
    /// The database refuses to go on, because of an earlier failure or for another reason.
    Refused(String),
    /// The bytes have changed since they were written.
    Damaged(String),
    /// A newer program has written it.
    Newer(u64),
    /// A file is not in its place.
    Displaced(Displaced),
}

impl Fault {
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Locked => "its file is open elsewhere".into(),
            Self::Io(error) => error.to_string(),
            Self::Refused(reason) | Self::Damaged(reason) => reason.clone(),
            Self::Newer(found) => format!("it has format {found}"),
            Self::Displaced(displaced) => displaced.how.to_string(),
        }
    }

    fn no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io(e) if matches!(e.kind(), StorageFull | QuotaExceeded))
    }

    /// Returns the error for callers whose write was in a failed commit.
    pub(super) fn not_committed(&self, place: &str) -> StoreError {
        if let Self::Displaced(displaced) = self {
            return displaced.into();
        }
        StoreError::NotCommitted {
            place: place.to_owned(),
            reason: self.reason(),
            no_space: self.no_space(),
        }
    }

    /// Returns the error for callers that only read.
    pub(super) fn unread(&self, place: &str) -> StoreError {
        let (place, reason) = (place.to_owned(), self.reason());
        match self {
            Self::Damaged(_) | Self::Newer(_) => StoreError::Damaged { place, reason },
            Self::Locked | Self::Io(_) | Self::Refused(_) => {
                StoreError::Unavailable { place, reason }
            }
            Self::Displaced(displaced) => displaced.into(),
        }
    }

    /// Returns the error for callers that open `database` in `directory`.
    pub(super) fn unopened(self, directory: &Path, database: &Path, known: u64) -> OpenError {
        let path = database.to_owned();
        match self {
            Self::Locked => OpenError::Locked {
                directory: directory.to_owned(),
            },
            Self::Io(source) => OpenError::of(path, source),
            Self::Refused(reason) | Self::Damaged(reason) => OpenError::Damaged { path, reason },
            Self::Newer(found) => OpenError::Newer { path, found, known },
            Self::Displaced(displaced) => OpenError::Missing {
                path: displaced.path,
            },
        }
    }
}

impl From<&Displaced> for StoreError {
    fn from(displaced: &Displaced) -> Self {
        Self::Displaced {
            place: displaced.path.display().to_string(),
            how: displaced.how,
        }
    }
}

impl From<Displaced> for Fault {
    fn from(displaced: Displaced) -> Self {
        Self::Displaced(displaced)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A file that is shorter than its header says, or has another header.
            io::ErrorKind::UnexpectedEof => Self::Damaged("it is cut short".into()),
            io::ErrorKind::InvalidData => Self::Damaged("it is not a database".into()),
            _ => Self::Io(error),
        }
    }
}

/// Converts every error type that redb has for an operation.
impl<E: Into<redb::Error>> From<E> for Wrapped {
    fn from(error: E) -> Self {
        Self(Fault::of(error.into()))
    }
}

/// A [`Fault`] on its way through `?`. redb's errors have many types, and `Fault` itself cannot be
/// converted from all of them and from `io::Error` as well.
#[derive(Debug)]
pub(super) struct Wrapped(pub(super) Fault);

impl Fault {
    fn of(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::Locked,
            redb::Error::Io(error) => error.into(),
            redb::Error::Corrupted(reason) => Self::Damaged(reason),
            error @ (redb::Error::UpgradeRequired(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TableIsNotMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::TableDoesNotExist(_)) => {
                Self::Damaged(format!("it is not the database of an inbox: {error}"))
            }
            error => Self::Refused(error.to_string()),
        }
    }
}

/// Runs work on the database. A panic of the database becomes an error like others: it may panic
/// over a file whose bytes were changed.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Wrapped>) -> Result<T, Fault> {
    // Anything that the panic left half done is dropped: the database is opened again after a
    // write, and a read changes nothing.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => answer.map_err(|Wrapped(fault)| fault),
        Err(panic) => Err(Fault::Damaged(text(&*panic))),
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the database panicked: {}", text.unwrap_or("no message"))
}
