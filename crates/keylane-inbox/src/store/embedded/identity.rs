//! The files of an inbox, as they were opened.

use std::sync::Arc;

use keylane_disk::{Displaced, Displacement, Place, Watch};

use super::directory::Directory;
use crate::error::OpenError;

/// What tells whether the files that are open are those of the directory. It keeps other processes
/// out of the directory as well.
pub(super) struct Identity {
    directory: Directory,
    database: Place,
    starts: Place,
    watch: Arc<Watch>,
}

impl Identity {
    /// Of files that were opened just now, and that the directory keeps locked.
    pub(super) fn of(directory: Directory, watch: &Arc<Watch>) -> Result<Self, OpenError> {
        let find = |path| Place::find(path).map_err(|error| OpenError::of(path, error));
        Ok(Self {
            database: find(&directory.database())?,
            starts: find(&directory.starts())?,
            directory,
            watch: Arc::clone(watch),
        })
    }

    /// Whether each path still names the file that is open, and the database is as this process has
    /// written it.
    pub(super) fn look(&self) -> Result<(), Displaced> {
        self.look_at_names()?;
        self.look_at_bytes()
    }

    pub(super) fn look_at_names(&self) -> Result<(), Displaced> {
        let places = [&self.database, &self.starts, self.directory.lock()];
        places.into_iter().try_for_each(Place::look)
    }

    /// A copy that is written over the database keeps its name and its inode. Only for the thread
    /// that writes.
    pub(super) fn look_at_bytes(&self) -> Result<(), Displaced> {
        match self.watch.is_header_of(self.database.file()) {
            true => Ok(()),
            false => Err(self.database.displaced(Displacement::Overwritten)),
        }
    }
}
