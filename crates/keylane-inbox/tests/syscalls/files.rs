//! The files of a run.

use std::path::{Path, PathBuf};

/// A folder with an inbox and a journal.
#[derive(Clone, Debug)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn at(folder: impl AsRef<Path>) -> Self {
        Self(folder.as_ref().to_owned())
    }

    pub(crate) fn inbox(&self) -> PathBuf {
        self.0.join("inbox")
    }

    pub(crate) fn database(&self) -> String {
        self.0.join("inbox/messages.redb").display().to_string()
    }

    pub(crate) fn journal(&self) -> String {
        self.0.join("journal").display().to_string()
    }

    /// The same file by another name: its opening is none of the calls that are counted.
    pub(crate) fn journal_uncounted(&self) -> PathBuf {
        self.0.join(".").join("journal")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    pub(crate) fn said(&self) -> PathBuf {
        self.0.join("said")
    }

    /// Everything whose calls are counted.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        let names = [
            "",
            "lock",
            "keylane-inbox",
            "keylane-inbox.new",
            "messages.redb",
            "messages.redb.new",
            "starts",
        ];
        let inbox = names.iter().map(|name| match *name {
            "" => self.inbox(),
            name => self.inbox().join(name),
        });
        inbox.chain([self.journal().into()]).collect()
    }
}
