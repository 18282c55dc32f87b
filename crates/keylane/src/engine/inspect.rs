//! Why one key waits.

use std::fmt;
use std::time::Duration;

use super::Engine;
use super::message::{Held, Work};
use crate::clock::Instant;
use crate::lanes::State;

/// What a lane is seen to be.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) depth: usize,
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
}

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    pub(crate) fn inspect(&self, key: &K, hash: u64, now: Instant) -> Option<Seen> {
        self.lanes.peek(hash, key, |lane| Seen {
            depth: lane.depth(),
            oldest_waiting: lane
                .oldest_parked()
                .map(|parked| self.waited(parked.ticket.parked_at, now)),
            full: lane.gate().is_some() || lane.depth() >= self.settings.lane_capacity,
            waiting: match lane.state() {
                State::Ready => Waiting::Runner,
                State::Running { since, attempt } => Waiting::Handler {
                    attempt: *attempt,
                    lasted: now.saturating_duration_since(*since),
                },
                State::Backoff { until, head } => {
                    Self::in_backoff(head, until.saturating_duration_since(now))
                }
                State::Halted { head } => Waiting::Decision {
                    attempts: head.work.attempts(),
                    why: head.why.to_string(),
                },
            },
        })
    }

    fn in_backoff(head: &Held<K, M, O, E>, due_in: Duration) -> Waiting {
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
