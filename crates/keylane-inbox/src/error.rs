//! Errors, one small type per operation. Each says what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use keylane_disk::Displacement;

pub use crate::limits::LimitError;

/// Why an inbox was not opened. Nothing was changed, and nothing was read as empty.
#[non_exhaustive]
#[derive(Error, Debug)]
pub enum OpenError {
    /// This setting must not be zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting is larger than an inbox can keep.
    #[error("`{setting}` must be at most {limit}")]
    TooLarge {
        /// Its name.
        setting: &'static str,
        /// The most it may be.
        limit: usize,
    },
    /// The path of the directory is empty.
    #[error("the directory of the inbox is not named: name one, such as `orders`")]
    Unnamed,
    /// There is a file where the directory should be.
    #[error(
        "{path} is not a directory, or a part of its path is a file: name the directory of the inbox, or a new one"
    )]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// Another process has this inbox open; or this one does already.
    #[error(
        "the inbox in {directory} is open already: use that one, or close it (stop its process) \
         first"
    )]
    Locked {
        /// The directory of the inbox.
        directory: PathBuf,
    },
    /// The user of this process may not write there.
    #[error("{path} may not be written: give this user the right to write, or mount it writable")]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// There is no room on the disk.
    #[error("no room left for {path}: free some, and open the inbox again")]
    NoSpace {
        /// The file or directory.
        path: PathBuf,
    },
    /// A newer version of this crate has written it.
    #[error("{path} has format {found}, and this program knows {known}: use a newer program")]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its format.
        found: u64,
        /// The newest version that this program knows.
        known: u64,
    },
    /// The directory was an inbox, and its database is gone; or there is none, and it was not to be
    /// made: [`Builder::create`](crate::Builder::create).
    #[error(
        "{path} is missing, so there is no inbox to open: check the name of the directory; if it \
         was an inbox, restore the file from a backup"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The directory holds something else than an inbox.
    #[error("{directory} holds other files, such as {found}: name an empty or a new directory")]
    Foreign {
        /// What was named.
        directory: PathBuf,
        /// One of the files in it.
        found: String,
    },
    /// The file is not what was written: bits have changed, it is cut, or it is something else.
    #[error("{path} is damaged ({reason}): restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The database is older than what was confirmed of it: another file took its place, or its
    /// newest part was damaged.
    #[error(
        "{path} lacks its last {missing} commits, which were confirmed: restore the newest file, \
         or remove {witness} to go on without them"
    )]
    Behind {
        /// The database.
        path: PathBuf,
        /// How many commits are not there.
        missing: u64,
        /// The file that knows about them.
        witness: PathBuf,
    },
    /// The database and the file of starts are not of one history: one of the two comes from a copy
    /// or a backup that went on by itself meanwhile. Under the same sequence the two may know
    /// different messages, so the attempts that were counted may be those of others.
    #[error(
        "{path} and {witness} are not of one history: restore both from the same backup, or remove \
         {witness} to go on without the attempts that it has counted"
    )]
    OtherHistory {
        /// The database.
        path: PathBuf,
        /// The file of starts.
        witness: PathBuf,
    },
    /// The operating system says no.
    #[error("{path} cannot be opened: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
}

impl OpenError {
    /// The error of a file, by what its user can do.
    pub(crate) fn of(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io { path, error },
        }
    }
}

/// Why the store could not do something.
///
/// What was to be written may be in the store or not where
/// [`may_be_stored`](Self::may_be_stored) says so: a disk that fails, or a server that is not heard
/// any more, does not tell.
#[non_exhaustive]
#[derive(Error, Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The inbox was closed.
    #[error("the inbox is closed")]
    Closed,
    /// The write failed. It may be found in the store later, though it was not confirmed.
    #[error(
        "not confirmed by {place} ({reason}): send it again once there is room and the disk works; \
         an id keeps it from being stored twice"
    )]
    NotCommitted {
        /// The file or server.
        place: String,
        /// What it said.
        reason: String,
        /// Whether there was no room.
        no_space: bool,
    },
    /// A write failed before, and the store could not be opened again since. It is tried again
    /// all the time.
    #[error(
        "{place} could not be opened again after a failed write ({reason}): free room or mend the \
         disk, and send it again; the inbox goes on by itself"
    )]
    Unavailable {
        /// The file or server.
        place: String,
        /// What it said.
        reason: String,
    },
    /// A file of the inbox is not where it was opened: it was removed, moved, replaced or written
    /// over while the inbox was open. Nothing is written or read any more, and a process that opens
    /// the directory now does not find what this one has stored, or not all of it.
    ///
    /// What was answered before is in the file that this process has open, and nowhere else. Under
    /// [`SyncMode::LosesNothing`](crate::SyncMode::LosesNothing) each answer came after a look that
    /// found the file in its place. Under [`SyncMode::LosesUpTo`](crate::SyncMode::LosesUpTo) the
    /// same, but what was not synced may be lost. If the same files are put back, the inbox goes on
    /// by itself.
    ///
    /// The files stay open until the inbox is closed: on Linux what was removed can be copied from
    /// `/proc/<process>/fd` until then.
    #[error("{place} {how}")]
    Displaced {
        /// The file, as it was opened.
        place: String,
        /// What has become of it.
        how: Displacement,
    },
    /// The server of the database says no, or cannot be reached.
    #[error(
        "{reason}: try again, or mend what it names; an id keeps a message from being stored twice"
    )]
    Server {
        /// What it said, or why it was not heard.
        reason: String,
        /// Whether what was to be written may be there all the same.
        is_unconfirmed: bool,
    },
    /// What was read is not what was written.
    #[error("{place} is damaged ({reason}): stop, and restore it from a backup")]
    Damaged {
        /// The file or server.
        place: String,
        /// What is wrong.
        reason: String,
    },
}

impl StoreError {
    /// Whether what was to be written may be in the store in spite of the error.
    pub fn may_be_stored(&self) -> bool {
        match self {
            Self::NotCommitted { .. } | Self::Displaced { .. } => true,
            Self::Server { is_unconfirmed, .. } => *is_unconfirmed,
            Self::Closed | Self::Unavailable { .. } | Self::Damaged { .. } => false,
        }
    }
}

/// Why messages were not accepted. They come back.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum AcceptError<M> {
    /// A message is beyond a limit; none of the call was stored.
    #[error("{0}")]
    Limit(LimitError, M),
    /// The store did not confirm them. They may be stored if
    /// [`may_be_stored`](StoreError::may_be_stored) says so.
    #[error("{0}")]
    Store(StoreError, M),
}

impl<M> AcceptError<M> {
    /// What was not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Limit(_, messages) | Self::Store(_, messages) => messages,
        }
    }

    /// The same error with something else to give back.
    pub(crate) fn map<N>(self, change: impl FnOnce(M) -> N) -> AcceptError<N> {
        match self {
            Self::Limit(error, messages) => AcceptError::Limit(error, change(messages)),
            Self::Store(error, messages) => AcceptError::Store(error, change(messages)),
        }
    }
}

// The messages are the user's: they are not shown.
impl<M> fmt::Debug for AcceptError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error, _) => f.debug_tuple("Limit").field(error).finish_non_exhaustive(),
            Self::Store(error, _) => f.debug_tuple("Store").field(error).finish_non_exhaustive(),
        }
    }
}
