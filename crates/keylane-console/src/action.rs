//! What an operator may do.

use serde::{Deserialize, Serialize};

/// What an operator may do, if [`Builder::allow`](crate::Builder::allow) allows it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// [`LaneControl::pause`](keylane::LaneControl::pause).
    Pause,
    /// [`LaneControl::resume`](keylane::LaneControl::resume).
    Resume,
    /// [`LaneControl::retry_now`](keylane::LaneControl::retry_now).
    RetryNow,
    /// [`LaneControl::skip`](keylane::LaneControl::skip): the head settles as failed.
    Skip,
    /// [`LaneControl::purge`](keylane::LaneControl::purge): the messages of the key are lost.
    Purge,
    /// [`LaneControl::replace`](keylane::LaneControl::replace), where
    /// [`View::decode`](crate::View::decode) makes a message of a text.
    Replace,
    /// Dead letters are handled again.
    RedriveLetters,
    /// Dead letters are lost.
    PurgeLetters,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 8] = [
        Self::Pause,
        Self::Resume,
        Self::RetryNow,
        Self::Skip,
        Self::Purge,
        Self::Replace,
        Self::RedriveLetters,
        Self::PurgeLetters,
    ];
}
