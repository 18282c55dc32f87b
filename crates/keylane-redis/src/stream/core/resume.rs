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
    /// All entries up to this one had settled.
    pub(crate) settled: EntryId,
    /// The token of the owner; then its consumer.
    pub(crate) token: Arc<str>,
    pub(crate) consumer: Arc<str>,
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

    pub(crate) fn set(&self, stream: u32, mut resume: Resume) {
        let mut all = lock(&self.0);
        // An owner that has read nothing knows no more than the one before it.
        if resume.settled == EntryId::default()
            && resume.seen.is_none()
            && let Some(before) = all.get(&stream)
        {
            resume.settled = before.settled;
            resume.seen = before.seen.clone();
        }
        all.insert(stream, resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_has_read_nothing_leaves_what_is_known() {
        let resumes = Resumes::default();
        let resume = |token: &str, settled: u64| Resume {
            settled: EntryId::new(settled, 0),
            token: token.into(),
            consumer: "a".into(),
            seen: (settled > 0).then(|| Seen {
                id: EntryId::new(settled, 0),
                fields: Fields::default(),
            }),
        };
        for (token, settled, known) in [("1", 0, 0), ("2", 7, 7), ("3", 0, 7), ("4", 9, 9)] {
            resumes.set(3, resume(token, settled));
            let now = resumes.get(3).expect("it is known");
            assert_eq!((&*now.token, now.settled), (token, EntryId::new(known, 0)));
            assert_eq!(now.seen.is_some(), known > 0);
        }
    }
}
