//! What the rows of an election say.

use std::time::Duration;

use keylane_leader::store::{CandidateId, Election, Holder, Stage, TermRecord};
use keylane_leases::Token;

use crate::error::SqlError;

/// The stages, by their numbers in a column.
const STAGES: [Stage; 3] = [Stage::Began, Stage::Leaving, Stage::Ended];

/// Returns the number of a stage in its column.
pub(super) fn number_of(stage: Stage) -> u8 {
    match stage {
        Stage::Began => 0,
        Stage::Leaving => 1,
        Stage::Ended => 2,
    }
}

/// Returns the candidate that the leader has chosen, for its column.
pub(super) fn chosen_in(term: &TermRecord) -> Option<&str> {
    term.chosen.as_ref().map(CandidateId::as_str)
}

/// The columns of a term.
#[derive(Debug)]
pub(super) struct TermRow {
    pub(super) token: u64,
    pub(super) leader: String,
    pub(super) stage: u8,
    pub(super) chosen: Option<String>,
}

impl TermRow {
    pub(super) fn term(self) -> Result<TermRecord, SqlError> {
        let stage = STAGES.get(usize::from(self.stage)).copied();
        Ok(TermRecord {
            token: Token(self.token),
            leader: candidate(self.leader)?,
            stage: stage.ok_or_else(damaged)?,
            chosen: self.chosen.map(candidate).transpose()?,
        })
    }
}

/// The columns of an election.
#[derive(Debug)]
pub(super) struct ElectionRow {
    pub(super) held: Option<u64>,
    /// In microseconds.
    pub(super) remaining: Option<i64>,
    pub(super) term: Option<TermRow>,
    pub(super) next: Option<String>,
}

impl ElectionRow {
    pub(super) fn election(self) -> Result<Election, SqlError> {
        let remaining = self.remaining.map(u64::try_from);
        let remaining = remaining.and_then(Result::ok).unwrap_or(0);
        Ok(Election {
            holder: self.held.map(|token| Holder {
                token: Token(token),
                remaining: Duration::from_micros(remaining),
            }),
            term: self.term.map(TermRow::term).transpose()?,
            next: self.next.map(candidate).transpose()?,
            revision: 0,
        })
    }
}

fn candidate(name: String) -> Result<CandidateId, SqlError> {
    CandidateId::new(name).ok_or_else(damaged)
}

/// The error for rows that differ from what this crate writes.
pub(super) fn damaged() -> SqlError {
    SqlError::other("the rows of the election differ from what was written")
}
