//! The reason why one key waits.

use std::time::Duration;

use keylane_lanes::{Sequencer, State, WaitReason};
use keylane_rt::clock::Instant;
use keylane_rt::unwind::caught;
use keylane_source::BoxError;
use keylane_source::lease::LaneHolder;

use super::LaneTable;
use crate::engine::lane::Lane;
use crate::engine::message::{Held, Parked, Work};
use crate::lane::{LaneState, LaneView};
use crate::observe::trace::Shown;
use crate::types::Spec;

impl<T: Spec> LaneTable<T> {
    pub(crate) fn inspect(&self, key: &T::Key, hash: u64, now: Instant) -> Option<LaneView> {
        let mut view = self.lanes.peek(hash, key, |lane| LaneView {
            depth: lane.depth(&self.rules),
            state: Self::state_of(lane, now),
            head_age: self
                .head_accepted_at(lane)
                .map(|at| self.clocks.waited(at, now)),
            oldest_waiting: Self::oldest_behind(lane)
                .map(|parked| self.clocks.waited(parked.envelope.accepted_at, now)),
            full: lane.gate().is_some() || lane.depth(&self.rules) >= self.settings.lane_capacity,
            lease: None,
        })?;
        // Not under the lock of the lane: it is the inner one of the two.
        view.lease = self
            .leases
            .as_ref()
            .and_then(|leases| leases.token(hash, key));
        Some(view)
    }

    /// Who has the lease of a key, as the leases say: a call to their store.
    pub(crate) async fn lease_holder(&self, key: &T::Key) -> Result<Option<LaneHolder>, BoxError> {
        match &self.settings.leases {
            Some(leases) => leases.held_by(key).await,
            None => Ok(None),
        }
    }

    fn state_of(lane: &Lane<T>, now: Instant) -> LaneState {
        match lane.state() {
            State::Halted { head } => LaneState::Halted {
                attempts: head.work.attempts(),
                why: head.why.to_string(),
            },
            State::Backoff { .. } | State::Waiting { .. } if lane.is_paused() => LaneState::Paused,
            State::Entered | State::Ready | State::Scheduled => LaneState::Ready,
            _ if lane.state().is_unleased() => LaneState::Leasing,
            State::Waiting { reason, until } => {
                let due_in = until.map(|until| until.saturating_duration_since(now));
                Self::at_rest(lane, *reason, due_in)
            }
            State::Running { since, attempt, .. } => LaneState::Running {
                attempt: *attempt,
                lasted: now.saturating_duration_since(*since),
            },
            State::Backoff { until, head, .. } => {
                Self::in_backoff(head, until.saturating_duration_since(now))
            }
        }
    }

    /// The oldest message behind the head. Where the head is parked too, it is the second.
    fn oldest_behind(lane: &Lane<T>) -> Option<&Parked<T>> {
        match lane.state() {
            State::Scheduled | State::Waiting { .. } => lane.parked().iter().nth(1),
            _ => lane.parked().oldest(),
        }
    }

    /// When the head of a lane was accepted, where the lane knows it.
    pub(crate) fn head_accepted_at(&self, lane: &Lane<T>) -> Option<u64> {
        match lane.state() {
            State::Entered | State::Ready => None,
            State::Running { accepted_at, .. } => Some(*accepted_at),
            State::Backoff { head, .. } | State::Halted { head } => Some(head.envelope.accepted_at),
            State::Scheduled | State::Waiting { .. } => {
                let first = lane.oldest_waiting();
                first.map(|parked| parked.envelope.accepted_at)
            }
        }
    }

    fn at_rest(lane: &Lane<T>, why: WaitReason, due_in: Option<Duration>) -> LaneState {
        let soon = due_in.unwrap_or_default();
        match why {
            WaitReason::Paused => LaneState::Paused,
            WaitReason::Rate => LaneState::RateLimited { due_in: soon },
            WaitReason::Delay => LaneState::Delayed { due_in: soon },
            WaitReason::Linger => LaneState::Lingering { due_in: soon },
            WaitReason::Lease => LaneState::Leasing,
            WaitReason::Load | WaitReason::Record => LaneState::Loading,
            WaitReason::Empty => LaneState::Ready,
            WaitReason::Gap | WaitReason::HaltedGap => {
                match lane.sequencer().and_then(Sequencer::gap) {
                    Some(gap) => LaneState::Gap {
                        first: gap.first,
                        last: gap.last,
                        due_in,
                    },
                    None => LaneState::Ready,
                }
            }
        }
    }

    fn in_backoff(head: &Held<T>, due_in: Duration) -> LaneState {
        let why = head.why.to_string();
        match &head.work {
            Work::Entered | Work::Leased(_) | Work::Attempt(_) => LaneState::Backoff {
                next_attempt: head.work.attempts() + 1,
                due_in,
                why,
            },
            Work::Letter(given_up) => LaneState::DeadLettering {
                refusals: given_up.refusals,
                due_in,
                why,
            },
        }
    }

    /// A key with this hash that has a lane. A key that cannot be cloned cannot be shown.
    pub(crate) fn key_of(&self, hash: u64) -> Option<T::Key> {
        caught(|| self.lanes.key_of(hash)).ok().flatten()
    }

    /// How to show a key by its hash, while it has a lane.
    pub(crate) fn shown_by_hash(&self, hash: u64) -> String {
        let key = self.settings.show_key.and_then(|_| self.key_of(hash));
        let shown = Shown {
            key: key.as_ref(),
            hash,
            show: self.settings.show_key,
        };
        match key {
            Some(_) => shown.to_string(),
            None => format!("#{hash:016x}"),
        }
    }
}
