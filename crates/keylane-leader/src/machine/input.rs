//! What the machine is told, and what it wants.

use std::time::Duration;

use keylane_leases::error::LeaseLost;
use tokio::time::Instant;

use crate::career::End;
use crate::store::CandidateId;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The store has entered this candidate, and has answered with the election.
    Looked(Sight),
    /// The store has not answered, or not granted the lease, or not recorded the term.
    CallFailed,
    /// The election is no longer as it was seen.
    Changed,
    /// The lease of the term is granted.
    Granted,
    /// The term is recorded. How did the one before it end?
    Began(Succession),
    /// A phase of the career has ended by itself.
    PhaseEnded(Outcome),
    /// Until when the lease is held.
    Held(Instant),
    /// The lease is lost.
    Lost(LeaseLost),
    /// The store is in another history.
    OtherHistory,
    /// The term is recorded as ended, and its lease is released; or the store could not be reached.
    /// Or the candidate is withdrawn.
    Done,
    /// The user wants the leader to leave, and to stay a candidate.
    Resign(Option<CandidateId>),
    /// The user wants the candidate to leave for good.
    Close,
    /// The time of [`Wants::at`] has come.
    Tick,
}

/// What matters to a candidate in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Whether it is the next one.
    pub(crate) is_next: bool,
    /// How long the lease of the term lasts. `None`: it is free.
    pub(crate) held_for: Option<Duration>,
    /// Whether the leader is leaving.
    pub(crate) is_leaving: bool,
}

/// How the last term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Its leader has handed over, or there was none.
    Orderly,
    /// It has not, as far as the store knows.
    Lost,
}

/// How a phase has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Failed(String),
    Panicked(String),
}

/// What is to be running, and when the machine is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) phase: Option<Phase>,
    pub(crate) call: Option<Call>,
    /// Whether `execute` is to stop.
    pub(crate) stop: bool,
    /// When [`Input::Tick`] is due.
    pub(crate) at: Option<Instant>,
}

/// A phase of the career.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Prepare,
    Inaugurate,
    Execute,
    HandOver(End),
}

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Enter the candidate, and look. Then wait for changes.
    Look,
    /// Wait until the election changes.
    Watch,
    /// Ask for the lease of the term.
    Acquire,
    /// Record the term as begun.
    Begin,
    /// Record the term as leaving, to this candidate if one is chosen.
    Mark(Option<CandidateId>),
    /// Record the term as ended, if it has ended in order, and release its lease.
    Release {
        is_orderly: bool,
        chosen: Option<CandidateId>,
    },
    /// Withdraw the candidate.
    Withdraw,
}
