//! Why one key waits.

use std::time::Duration;

use super::message::{Held, Parked, Work};
use super::{Engine, Lane};
use crate::clock::Instant;
use crate::lanes::{Sequencer, State, WaitReason};
use crate::types::Spec;

/// What a lane is seen to be.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) depth: usize,
    pub(crate) head_age: Option<Duration>,
    pub(crate) oldest_waiting: Option<Duration>,
    pub(crate) full: bool,
    pub(crate) waiting: Waiting,
}

/// What the head of a lane waits for.
#[derive(Debug)]
pub(crate) enum Waiting {
    Runner,
    Handler {
        attempt: u32,
        lasted: Duration,
    },
    Retry {
        next_attempt: u32,
        due_in: Duration,
        why: String,
    },
    Sink {
        refusals: u32,
        due_in: Duration,
        why: String,
    },
    Decision {
        attempts: u32,
        why: String,
    },
    Resume,
    Rate {
        due_in: Duration,
    },
    Time {
        due_in: Duration,
    },
    Batch {
        due_in: Duration,
    },
    Store,
    Versions {
        first: u64,
        last: u64,
        /// `None`: they were given up waiting for.
        due_in: Option<Duration>,
    },
    Messages,
}

impl<T: Spec> Engine<T> {
    pub(crate) fn inspect(&self, key: &T::Key, hash: u64, now: Instant) -> Option<Seen> {
        self.lanes.peek(hash, key, |lane| Seen {
            depth: lane.depth(&self.rules),
            head_age: self.head_stamp(lane).map(|stamp| self.waited(stamp, now)),
            oldest_waiting: Self::oldest_behind(lane)
                .map(|parked| self.waited(parked.ticket.parked_at, now)),
            full: lane.gate().is_some() || lane.depth(&self.rules) >= self.settings.lane_capacity,
            waiting: match lane.state() {
                State::Halted { head } => Waiting::Decision {
                    attempts: head.work.attempts(),
                    why: head.why.to_string(),
                },
                State::Backoff { .. } | State::Waiting { .. } if lane.is_paused() => {
                    Waiting::Resume
                }
                State::Ready | State::Scheduled => Waiting::Runner,
                State::Waiting { reason, until } => {
                    let due_in = until.map(|until| until.saturating_duration_since(now));
                    Self::at_rest(lane, *reason, due_in)
                }
                State::Running { since, attempt, .. } => Waiting::Handler {
                    attempt: *attempt,
                    lasted: now.saturating_duration_since(*since),
                },
                State::Backoff { until, head, .. } => {
                    Self::in_backoff(head, until.saturating_duration_since(now))
                }
            },
        })
    }

    /// The oldest message behind the head, which may be the first of those that are parked.
    fn oldest_behind(lane: &Lane<T>) -> Option<&Parked<T>> {
        match lane.state() {
            State::Scheduled | State::Waiting { .. } => lane.parked().nth(1),
            _ => lane.oldest_parked(),
        }
    }

    /// When the head of a lane was parked, where the lane knows it.
    pub(super) fn head_stamp(&self, lane: &Lane<T>) -> Option<u64> {
        match lane.state() {
            State::Ready => None,
            State::Running { accepted_at, .. } => Some(*accepted_at),
            State::Backoff { head, .. } | State::Halted { head } => Some(head.ticket.parked_at),
            State::Scheduled | State::Waiting { .. } => {
                let first = lane.oldest_waiting();
                first.map(|parked| parked.ticket.parked_at)
            }
        }
    }

    fn at_rest(lane: &Lane<T>, why: WaitReason, due_in: Option<Duration>) -> Waiting {
        let soon = due_in.unwrap_or_default();
        match why {
            WaitReason::Paused => Waiting::Resume,
            WaitReason::Rate => Waiting::Rate { due_in: soon },
            WaitReason::Delay => Waiting::Time { due_in: soon },
            WaitReason::Linger => Waiting::Batch { due_in: soon },
            WaitReason::Load | WaitReason::Record => Waiting::Store,
            WaitReason::Empty => Waiting::Messages,
            WaitReason::Gap | WaitReason::HaltedGap => {
                match lane.sequencer().and_then(Sequencer::gap) {
                    Some(gap) => Waiting::Versions {
                        first: gap.first,
                        last: gap.last,
                        due_in,
                    },
                    None => Waiting::Messages,
                }
            }
        }
    }

    fn in_backoff(head: &Held<T>, due_in: Duration) -> Waiting {
        let why = head.why.to_string();
        match &head.work {
            Work::Attempt(next) => Waiting::Retry {
                next_attempt: *next,
                due_in,
                why,
            },
            Work::Letter(given_up) => Waiting::Sink {
                refusals: given_up.refusals,
                due_in,
                why,
            },
        }
    }
}
