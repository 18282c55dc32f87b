//! Errors, one small type for each operation. Each says what to do.

use std::io;
use std::path::PathBuf;

use keylane_rt::text_in_debug;
use thiserror::Error;

pub use keylane_disk::Displacement;

pub use crate::limits::LimitError;

/// The reason why an inbox was not opened. Nothing was changed, and no damage was read as an empty
/// inbox.
#[non_exhaustive]
#[derive(Error)]
pub enum OpenError {
    /// This setting must not be zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting is larger than an inbox allows.
    #[error("`{setting}` must be at most {limit}")]
    TooLarge {
        /// The name of the setting.
        setting: &'static str,
        /// Its largest value.
        limit: usize,
    },
    /// The path of the directory is empty.
    #[error("no directory is given for the inbox: name one, such as `orders`")]
    Unnamed,
    /// There is a file where the directory should be.
    #[error(
        "{path} is not a directory, or a part of the path is a file: name the directory of the \
         inbox, or a new one"
    )]
    NotADirectory {
        /// The path that was given.
        path: PathBuf,
    },
    /// Another process has this inbox open, or this process has it open already.
    #[error(
        "the inbox in {directory} is already open: close it or stop its process first, or use \
         the open one"
    )]
    Locked {
        /// The directory of the inbox.
        directory: PathBuf,
    },
    /// The user of this process may not write to this path.
    #[error("{path} cannot be written: give this user permission to write, or mount it writable")]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// There is no room on the disk.
    #[error("no space left for {path}: free some, and open the inbox again")]
    NoSpace {
        /// The file or directory.
        path: PathBuf,
    },
    /// A newer version of this crate has written the file.
    #[error(
        "{path} has format {found}, but this program knows only {known}: use a newer version of it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its format.
        found: u64,
        /// The newest version that this program knows.
        known: u64,
    },
    /// The directory was an inbox, and its database is gone; or there is no inbox, and
    /// [`InboxBuilder::create`](crate::InboxBuilder::create) is off.
    #[error(
        "{path} is missing, so there is no inbox to open: check the name of the directory; if it \
         was an inbox, restore the file from a backup"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The directory contains other files than those of an inbox.
    #[error("{directory} holds other files, such as {found}: name an empty or a new directory")]
    Foreign {
        /// The path that was given.
        directory: PathBuf,
        /// One of the files in it.
        found: String,
    },
    /// The bytes of the file differ from those that were written: bits have changed, the file is
    /// cut, or it is another file.
    #[error("{path} is damaged ({reason}): restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// The database is older than its last confirmed commit: another file replaced it, or its
    /// newest part was damaged.
    #[error(
        "{path} lacks its last {missing} commits, which were confirmed: restore the newest file, \
         or remove {witness} to go on without them"
    )]
    Behind {
        /// The database.
        path: PathBuf,
        /// How many commits are missing.
        missing: u64,
        /// The file that has a record of them.
        witness: PathBuf,
    },
    /// The database and the file of starts belong to different histories: one of the two comes from
    /// a copy or a backup that was used on its own meanwhile. The two may know different messages
    /// under the same sequence, so the counted attempts may belong to other messages.
    #[error(
        "{path} and {witness} do not belong together: restore both from the same backup, or \
         remove {witness} to go on without the attempt counts in it"
    )]
    OtherHistory {
        /// The database.
        path: PathBuf,
        /// The file of starts.
        witness: PathBuf,
    },
    /// The operating system reports an error.
    #[error("{path} cannot be opened: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

text_in_debug! {
    OpenError:
    Zero, TooLarge, Unnamed, NotADirectory, Locked, ReadOnly, NoSpace, Newer, Missing, Foreign,
    Damaged, Behind, OtherHistory, Io
}

impl OpenError {
    /// Sorts the error of a file by what its user can do.
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

/// The reason why the store could not do something.
///
/// [`may_be_stored`](Self::may_be_stored) says whether the data may be in the store in spite of the
/// error: a disk that fails, or a server that stops answering, does not tell.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The inbox was closed.
    #[error("the inbox is closed")]
    Closed,
    /// The write failed. The store may contain it later, although it was not confirmed.
    #[error(
        "{place} did not confirm the write ({reason}): send it again when the disk works and has \
         space; an id keeps it from being stored twice"
    )]
    NotCommitted {
        /// The file or server.
        place: String,
        /// The error.
        reason: String,
        /// Whether the disk was full.
        no_space: bool,
    },
    /// An earlier write failed, and the store could not be opened again since. The store keeps
    /// trying.
    #[error(
        "{place} could not be opened again after a failed write ({reason}): free space or repair \
         the disk, then send it again; the inbox keeps trying by itself"
    )]
    Unavailable {
        /// The file or server.
        place: String,
        /// The error.
        reason: String,
    },
    /// A file of the inbox is not in its place: it was removed, moved, replaced or overwritten
    /// while the inbox was open. The inbox no longer reads or writes anything, and a process that
    /// opens the directory now does not find all of the stored messages.
    ///
    /// Messages that were answered before are only in the file that this process has open. Under
    /// [`SyncMode::LosesNothing`](crate::SyncMode::LosesNothing) each answer came after a check
    /// that found the file in its place. Under [`SyncMode::LosesUpTo`](crate::SyncMode::LosesUpTo)
    /// too, but messages that were not synced may be lost. If the same files are put back, the
    /// inbox goes on by itself.
    ///
    /// The files stay open until the inbox is closed: until then a removed file can be copied from
    /// `/proc/<process>/fd` on Linux.
    #[error("{place} {how}")]
    Displaced {
        /// The path of the file when it was opened.
        place: String,
        /// What happened to the file.
        how: Displacement,
    },
    /// The server of the database refuses, or cannot be reached.
    #[error("{reason}: try again, or fix the cause; an id keeps a message from being stored twice")]
    Server {
        /// The error of the server, or the reason why it did not answer.
        reason: String,
        /// Whether the data may be stored all the same.
        is_unconfirmed: bool,
    },
    /// The bytes that were read differ from those that were written.
    #[error("{place} is damaged ({reason}): stop this process, and restore the file from a backup")]
    Damaged {
        /// The file or server.
        place: String,
        /// What is wrong.
        reason: String,
    },
}

text_in_debug! { StoreError: Closed, NotCommitted, Unavailable, Displaced, Server, Damaged }

impl StoreError {
    /// Returns whether the data may be in the store in spite of the error.
    pub fn may_be_stored(&self) -> bool {
        match self {
            Self::NotCommitted { .. } | Self::Displaced { .. } => true,
            Self::Server { is_unconfirmed, .. } => *is_unconfirmed,
            Self::Closed | Self::Unavailable { .. } | Self::Damaged { .. } => false,
        }
    }
}

/// The reason why messages were not accepted. The error gives them back.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum AcceptError<M> {
    /// A message exceeds a limit; no message of the call was stored.
    #[error("{0}")]
    Limit(LimitError, M),
    /// The store did not confirm them. They may be stored if
    /// [`may_be_stored`](StoreError::may_be_stored) says so.
    #[error("{0}")]
    Store(StoreError, M),
}

text_in_debug! { AcceptError<M>: Limit, Store }

impl<M> AcceptError<M> {
    /// Returns the messages that were not accepted.
    pub fn into_inner(self) -> M {
        match self {
            Self::Limit(_, messages) | Self::Store(_, messages) => messages,
        }
    }

    /// Returns the same error with other contents to give back.
    pub(crate) fn map<N>(self, change: impl FnOnce(M) -> N) -> AcceptError<N> {
        match self {
            Self::Limit(error, messages) => AcceptError::Limit(error, change(messages)),
            Self::Store(error, messages) => AcceptError::Store(error, change(messages)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DecodeError;

    #[test]
    fn errors_show_their_text() {
        let path = || PathBuf::from("orders");
        let broken = || io::Error::other("it is broken");
        keylane_testkit::error_texts! {
            OpenError =>
                OpenError::Zero("max_key"),
                OpenError::TooLarge { setting: "max_key", limit: 9 },
                OpenError::Unnamed,
                OpenError::Locked { directory: path() },
                OpenError::Damaged { path: path(), reason: "it is cut".to_owned() },
                OpenError::Io { path: path(), error: broken() };
            StoreError =>
                StoreError::Closed,
                StoreError::Server { reason: "no answer".to_owned(), is_unconfirmed: true };
            LimitError =>
                LimitError::EmptyId { index: 0 },
                LimitError::Bytes { limit: 9 };
            AcceptError<[u8; 1]> =>
                AcceptError::Limit(LimitError::EmptyId { index: 0 }, [1]),
                AcceptError::Store(StoreError::Closed, [1]);
            DecodeError => DecodeError::Short, DecodeError::Version(9);
        }
    }
}
