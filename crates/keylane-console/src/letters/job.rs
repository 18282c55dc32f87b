//! One job over many letters: its progress.

use serde::Serialize;

/// The progress of a job, and how it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct JobView {
    /// `redrive_letters` or `purge_letters`.
    pub(crate) action: &'static str,
    pub(crate) filter: String,
    /// Letters that it has looked at.
    pub(crate) seen: u64,
    /// Letters that it has redriven or purged.
    pub(crate) done: u64,
    /// `running`, `stopping`, `done`, `stopped` or `failed`.
    pub(crate) state: &'static str,
    /// Why it has failed.
    pub(crate) why: String,
}

impl JobView {
    pub(crate) fn runs(&self) -> bool {
        matches!(self.state, "running" | "stopping")
    }
}
