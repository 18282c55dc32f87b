//! What the task is to do.

use std::collections::VecDeque;

use keylane_source::{Generation, Settlement};

use super::super::super::report::FailedPart;
use super::failures::Severity;
use super::parts::Saying;
use super::trouble::Trouble;
use crate::engine::Revoked;
use crate::watching::SourceEvent;

/// One thing that the task is to do.
#[derive(Debug)]
pub(in super::super) enum Action<P> {
    /// Call the source. Its answer is the next event.
    Call(Call<P>),
    /// Mark messages in the engine as taken back.
    Revoke {
        slots: Vec<u32>,
        how: Revoked,
    },
    /// Have the engine hand back what is marked and has not started.
    Sweep,
    /// Ask the source's guard which of these it still has, and report the others as lapsed.
    AskHeld(Vec<(u32, P)>),
    /// Settle messages that are in no lane: these, and what is chosen of those in the inlet.
    GiveBack(Vec<u32>, Unplaced),
    /// Drop what the source has pushed and was not taken in, and report how much that was.
    DropUnread,
    /// Have the core extend leases and confirm acks, as far as that is due.
    Serve,
    /// The source has failed for this reason, found after the settlements that come first.
    Fail(Trouble),
    /// Show the counters and the state.
    Publish,
    ShowParts(Vec<FailedPart>),
    Say(Saying),
    SayOpenAgain,
    ReportFailure(Severity, String),
    Notify(SourceEvent),
}

/// A call of the source.
#[derive(Debug)]
pub(in super::super) enum Call<P> {
    Open,
    Settle(Vec<Settlement<P>>),
    Confirm,
    Release(Vec<Generation>),
    Extend(Vec<P>),
    Close,
}

/// Messages in the inlet that are in no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Unplaced {
    None,
    /// Those for which [`Core::goes_back`](super::Core::goes_back) holds.
    Revoked,
    All,
}

/// Actions that are not carried out yet.
#[derive(Debug)]
pub(super) struct Actions<P> {
    /// Those of the last event, in order.
    new: Vec<Action<P>>,
    before: VecDeque<Action<P>>,
}

impl<P> Actions<P> {
    pub(super) fn new() -> Self {
        Self {
            new: Vec::new(),
            before: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, action: Action<P>) {
        self.new.push(action);
    }

    pub(super) fn publish(&mut self) {
        self.push(Action::Publish);
    }

    pub(super) fn report_failure(&mut self, severity: Severity, why: String) {
        self.push(Action::ReportFailure(severity, why));
    }

    pub(super) fn notify(&mut self, what: SourceEvent) {
        self.push(Action::Notify(what));
    }

    pub(super) fn call(&mut self, call: Call<P>) {
        self.push(Action::Call(call));
    }

    /// The next one. What the last event has added comes before what was there.
    pub(super) fn next(&mut self) -> Option<Action<P>> {
        while let Some(action) = self.new.pop() {
            self.before.push_front(action);
        }
        self.before.pop_front()
    }

    /// The source has failed: nothing more is asked of what it was.
    pub(super) fn drop_calls(&mut self) {
        let stays = |action: &Action<P>| !matches!(action, Action::Call(_));
        self.new.retain(stays);
        self.before.retain(stays);
    }
}
