//! Where an owner of a stream goes on, if its group is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::super::answer::Fields;
use super::super::id::EntryId;
use keylane_connector::lock;

/// Where a group that is gone would begin again, by the number of its stream.
#[derive(Debug, Default)]
pub(crate) struct Resumes(Mutex<HashMap<u32, Resume>>);

/// The last state of a stream that its owner knew.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    pub(crate) known: Known,
    /// The token of the owner; then its consumer.
    pub(crate) token: Arc<str>,
    pub(crate) consumer: Arc<str>,
}

/// What is known of a stream. An owner begins with what the one before it knew, if the stream is
/// the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// All entries up to this one had settled.
    pub(crate) settled: EntryId,
    pub(crate) seen: Option<Seen>,
}

/// An entry that the stream had. A stream that was created again under its name may have an entry
/// with the same id; its content tells the two apart.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: EntryId,
    pub(crate) fields: Fields,
}

impl Resumes {
    pub(crate) fn get(&self, stream: u32) -> Option<Resume> {
        lock(&self.0).get(&stream).cloned()
    }

    pub(crate) fn set(&self, stream: u32, resume: Resume) {
        lock(&self.0).insert(stream, resume);
    }
}
