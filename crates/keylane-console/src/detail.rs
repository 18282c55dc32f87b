//! One lane with its messages and its last failed attempts.

use keylane::watching::{FailedAttempt, MessageView};
use serde::Serialize;
use tokio::time::Instant;

use crate::holders::HolderView;
use crate::parts::PartName;
use crate::rows::{Row, cut, ms};

/// Most messages and failed attempts of a lane that are shown.
pub(crate) const MOST_MESSAGES: usize = 50;
pub(crate) const MOST_FAILED: usize = 20;

/// One lane, as its own page shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) row: Row,
    /// The first messages, in the order of acceptance.
    pub(crate) messages: Vec<MessageRow>,
    /// The parts of sources that have a message of it at their frontier, and how many more.
    pub(crate) holds_back: Vec<PartName>,
    pub(crate) more_held: usize,
    /// The last attempts that failed, the last one first.
    pub(crate) failed: Vec<FailedRow>,
    /// Who has the lease of the key, if it is not held here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<HolderView>,
}

#[derive(Debug, Serialize)]
pub(crate) struct MessageRow {
    /// As text: it is a number of 64 bits.
    id: String,
    age_ms: u64,
    is_head: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FailedRow {
    attempt: u32,
    why: String,
    /// The time since then.
    ago_ms: u64,
}

impl MessageRow {
    pub(crate) fn of(view: MessageView) -> Self {
        let (source, position) = match view.origin {
            Some(origin) => (Some(cut(&origin.source)), Some(cut(&origin.position))),
            None => (None, None),
        };
        Self {
            id: view.id.to_string(),
            age_ms: ms(view.age),
            is_head: view.is_head,
            version: (view.version > 0).then(|| view.version.to_string()),
            source,
            position,
        }
    }
}

impl FailedRow {
    pub(crate) fn of(failed: FailedAttempt, now: Instant) -> Self {
        Self {
            attempt: failed.attempt,
            why: cut(&failed.why),
            ago_ms: ms(now.saturating_duration_since(failed.at)),
        }
    }
}
