//! What the database says when it fails, sorted by what can be done.

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
    /// The operating system said no.
    Io(io::Error),
    /// The database refuses to go on, because of an earlier failure or for a reason of its own.
    Refused(String),
    /// The bytes are not those that were written.
    Damaged(String),
    /// A newer program has written it.
    Newer(u64),
    /// A file is not where it was opened.
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

    /// For those whose write was in a commit that failed.
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

    /// For those who only wanted to read.
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

    /// For those who want to open `database` in `directory`.
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
            // A file that is shorter than its own header says, or that has another header.
            io::ErrorKind::UnexpectedEof => Self::Damaged("it is cut short".into()),
            io::ErrorKind::InvalidData => Self::Damaged("it is no database".into()),
            _ => Self::Io(error),
        }
    }
}

/// Whatever kind of error redb has for an operation.
impl<E: Into<redb::Error>> From<E> for Wrapped {
    fn from(error: E) -> Self {
        Self(Fault::of(error.into()))
    }
}

/// A [`Fault`] on its way through `?`: redb's errors are many types, and `Fault` itself cannot be
/// made from all of them and from `io::Error` as well.
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

/// What the database answers; a panic of its own is a failure like others. It may panic over a
/// file whose bytes were changed.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Wrapped>) -> Result<T, Fault> {
    // Whatever the panic has left half done is dropped: the database is opened again after a write,
    // and a read has changed nothing.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => answer.map_err(|Wrapped(fault)| fault),
        Err(panic) => Err(Fault::Damaged(text(&*panic))),
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the database panicked: {}", text.unwrap_or("no text"))
}
