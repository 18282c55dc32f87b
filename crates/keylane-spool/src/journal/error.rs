//! Errors of a directory and its file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keylane_disk::{Displaced, Displacement};

/// An error of the directory of a spool, or of its file. It names the file and what to do.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct DiskError(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    kind: DiskErrorKind,
    path: PathBuf,
    detail: String,
}

/// The kind of a [`DiskError`], for programs that act on it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// Another spool, in this process or another one, has the directory open.
    Locked,
    /// There is no space left on the device, or a quota is used up.
    Full,
    /// No right to read or write, or a read-only file system.
    Denied,
    /// The path of the directory is that of a file.
    NotADirectory,
    /// The file is not one of a spool.
    Foreign,
    /// The file was written by another version of this crate.
    OtherVersion,
    /// The file was changed, cut or damaged since it was written.
    Damaged,
    /// The file is not in its place: it was removed, moved, replaced or overwritten while the spool
    /// was open. The spool no longer stores messages in it, because no later
    /// [`open`](crate::SpoolBuilder::open) would find them. If the same file is put back, the spool goes
    /// on by itself.
    Displaced(Displacement),
    /// The device failed in another way.
    Io,
}

impl DiskError {
    pub(crate) fn new(kind: DiskErrorKind, path: &Path, detail: impl fmt::Display) -> Self {
        Self(Arc::new(Inner {
            kind,
            path: path.to_owned(),
            detail: detail.to_string(),
        }))
    }

    pub(crate) fn from_io(path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => DiskErrorKind::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                DiskErrorKind::Denied
            }
            io::ErrorKind::NotADirectory => DiskErrorKind::NotADirectory,
            // The store found no header of its own, or the file ends too early.
            io::ErrorKind::InvalidData => DiskErrorKind::Foreign,
            io::ErrorKind::UnexpectedEof => DiskErrorKind::Damaged,
            _ => DiskErrorKind::Io,
        };
        Self::new(kind, path, error)
    }

    pub(crate) fn is_displaced(&self) -> bool {
        matches!(self.0.kind, DiskErrorKind::Displaced(_))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> DiskErrorKind {
        self.0.kind
    }

    /// Returns whether the same call may work later without a change to the file: the disk is full,
    /// locked, or failing.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            DiskErrorKind::Locked | DiskErrorKind::Full | DiskErrorKind::Io
        )
    }

    /// Returns the file or directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, path, detail } = &*self.0;
        let path = path.display();
        match kind {
            DiskErrorKind::Locked => write!(
                f,
                "{path} is open in another spool or process: stop that one, or use another \
                 directory ({detail})"
            ),
            DiskErrorKind::Full => write!(
                f,
                "no space left for {path}: free some, or set a smaller `disk` ({detail})"
            ),
            DiskErrorKind::Denied => write!(
                f,
                "{path} cannot be read or written: check its owner and permissions ({detail})"
            ),
            DiskErrorKind::NotADirectory => write!(
                f,
                "{path} is not a directory: name a directory, or a path that does not exist \
                 ({detail})"
            ),
            DiskErrorKind::Foreign => write!(
                f,
                "{path} is not the file of a spool: use another directory, or move the file away \
                 ({detail})"
            ),
            DiskErrorKind::Displaced(how) => write!(f, "{path} {how}"),
            DiskErrorKind::OtherVersion => write!(
                f,
                "{path} was written by another version: drain it with that version, or use \
                 another directory ({detail})"
            ),
            DiskErrorKind::Damaged => write!(
                f,
                "{path} is damaged: restore a copy, or move it away to start empty, which gives \
                 up the messages in it ({detail})"
            ),
            DiskErrorKind::Io => write!(f, "{path} failed: {detail}"),
        }
    }
}

impl fmt::Debug for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.kind)
    }
}

impl std::error::Error for DiskError {}

impl From<Displaced> for DiskError {
    fn from(displaced: Displaced) -> Self {
        let kind = DiskErrorKind::Displaced(displaced.how);
        Self::new(kind, &displaced.path, displaced.how)
    }
}
