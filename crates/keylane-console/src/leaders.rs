//! Who leads, as far as this process knows.

use serde::Serialize;

use crate::rows::cut;

/// The leader of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// The candidate that leads.
    pub id: String,
    /// The fencing token of its term.
    pub token: u64,
    /// Whether it has said that it is leaving.
    pub is_leaving: bool,
}

/// Says who leads an election.
pub(crate) type Watching = Box<dyn Fn() -> Option<Leader> + Send + Sync>;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct LeaderRow {
    pub(crate) name: String,
    /// `None`: there is no leader, or none is known.
    pub(crate) leader: Option<String>,
    /// As text: it is a number of 64 bits.
    pub(crate) token: Option<String>,
    pub(crate) is_leaving: bool,
}

impl LeaderRow {
    pub(crate) fn of(name: &str, leader: Option<Leader>) -> Self {
        Self {
            name: name.to_owned(),
            token: leader.as_ref().map(|leader| leader.token.to_string()),
            is_leaving: leader.as_ref().is_some_and(|leader| leader.is_leaving),
            leader: leader.map(|leader| cut(&leader.id)),
        }
    }
}
