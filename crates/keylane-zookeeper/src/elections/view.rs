//! An election, as it was read from the servers: pure.

use keylane_leader::store::{Election, Holder, TermRecord};
use zookeeper_client::Stat;

use super::lineup::Lineup;

/// An election, as the servers have it.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) term: Option<TermRecord>,
    /// The version of the node; `None` if there is none.
    pub(super) version: Option<i32>,
    pub(super) revision: i64,
    pub(super) lineup: Lineup,
    pub(super) holder: Option<Holder>,
}

impl View {
    pub(super) fn term(&self) -> Option<&TermRecord> {
        self.term.as_ref()
    }

    /// Returns the election after a record was written.
    pub(super) fn after(self, term: &TermRecord, stat: &Stat) -> Self {
        Self {
            term: Some(term.clone()),
            version: Some(stat.version),
            revision: stat.mzxid,
            lineup: self.lineup.after(term),
            holder: self.holder,
        }
    }

    pub(super) fn election(&self) -> Election {
        Election {
            next: self.lineup.next().map(|next| next.id.clone()),
            holder: self.holder.clone(),
            term: self.term.clone(),
            revision: self.revision.unsigned_abs(),
        }
    }
}
