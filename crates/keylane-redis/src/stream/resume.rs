//! Where an owner of a stream goes on, if its group is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answer::Fields;
use super::id::EntryId;

/// Where a group that is gone would begin again, by the number of its stream.
#[derive(Debug, Default)]
pub(super) struct Resumes(Mutex<HashMap<u32, Resume>>);

/// The last state of a stream that its owner knew.
#[derive(Clone, Debug)]
pub(super) struct Resume {
    /// All entries up to this one had settled.
    pub(super) settled: EntryId,
    /// The token of the owner; then its consumer.
    pub(super) token: Arc<str>,
    pub(super) consumer: Arc<str>,
    pub(super) seen: Option<Seen>,
}

/// An entry that the stream had. A stream that was created again under its name may have an entry
/// with the same id; its content tells the two apart.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: EntryId,
    pub(super) fields: Fields,
}

impl Resumes {
    pub(super) fn get(&self, stream: u32) -> Option<Resume> {
        self.all().get(&stream).cloned()
    }

    pub(super) fn set(&self, stream: u32, resume: Resume) {
        self.all().insert(stream, resume);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u32, Resume>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
