//! The files that an inbox has open.

use std::sync::Arc;

use keylane_disk::{Displaced, Displacement, Place, Watch};

use super::directory::Directory;
use crate::error::OpenError;

/// Checks that the open files are those of the directory. It also keeps other processes out of the
/// directory.
pub(super) struct Identity {
    directory: Directory,
    database: Place,
    starts: Place,
    watch: Arc<Watch>,
}

impl Identity {
    /// Creates the value for files that were just opened; the directory keeps them locked.
    pub(super) fn of(directory: Directory, watch: &Arc<Watch>) -> Result<Self, OpenError> {
        let find = |path| Place::find(path).map_err(|error| OpenError::of(path, error));
        Ok(Self {
            database: find(&directory.database())?,
            starts: find(&directory.starts())?,
            directory,
            watch: Arc::clone(watch),
        })
    }

    /// Checks that each path still names the open file, and that the database is as this process
    /// wrote it.
    pub(super) fn look(&self) -> Result<(), Displaced> {
        self.look_at_names()?;
        self.look_at_bytes()
    }

    pub(super) fn look_at_names(&self) -> Result<(), Displaced> {
        let places = [&self.database, &self.starts, self.directory.lock()];
        places.into_iter().try_for_each(Place::look)
    }

    /// Checks the bytes of the database: a copy that overwrites it keeps its name and its inode.
    /// Only for the thread that writes.
    pub(super) fn look_at_bytes(&self) -> Result<(), Displaced> {
        match self.watch.is_header_of(self.database.file()) {
            true => Ok(()),
            false => Err(self.database.displaced(Displacement::Overwritten)),
        }
    }
}
