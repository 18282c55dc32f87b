//! How many lanes wait for what.

use keylane_lanes::{State, WaitReason};
use keylane_rt::atomic::{AtomicUsize, Ordering};

use crate::engine::lane::Lane;
use crate::observe::WaitingLanes;
use crate::types::Types;

/// What a lane waits for that no other gauge counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Rate,
    Delay,
    Batch,
    Lease,
    Store,
    Gap,
}

/// The lanes by what they wait for. Changed under the locks of their shards; statistics.
#[derive(Debug, Default)]
pub(crate) struct Waits([AtomicUsize; 6]);

impl Waits {
    pub(crate) fn get(&self) -> WaitingLanes {
        let get = |wait: Wait| self.0[wait as usize].load(Ordering::Relaxed);
        WaitingLanes {
            for_rate: get(Wait::Rate),
            for_time: get(Wait::Delay),
            for_batch: get(Wait::Batch),
            for_lease: get(Wait::Lease),
            for_store: get(Wait::Store),
            for_versions: get(Wait::Gap),
        }
    }

    /// Counts what a lane waits for after a step. `goes`: there is no lane any more. Under the
    /// shard's lock.
    #[inline]
    pub(super) fn count<T: Types>(&self, before: Option<Wait>, lane: &Lane<T>, goes: bool) {
        // Most lanes run, or will soon.
        if before.is_some() || is_at_rest(lane) {
            self.count_at_rest(before, lane, goes);
        }
    }

    #[cold]
    fn count_at_rest<T: Types>(&self, before: Option<Wait>, lane: &Lane<T>, goes: bool) {
        let after = Wait::of(lane).filter(|_| !goes);
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.0[before as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(after) = after {
            self.0[after as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Wait {
    /// Returns what a lane waits for. A paused lane waits for nothing else.
    #[inline]
    pub(crate) fn of<T: Types>(lane: &Lane<T>) -> Option<Self> {
        match is_at_rest(lane) {
            true => Self::at_rest(lane),
            false => None,
        }
    }

    #[cold]
    fn at_rest<T: Types>(lane: &Lane<T>) -> Option<Self> {
        match lane.state() {
            _ if lane.is_paused() => None,
            State::Waiting { reason, .. } => Self::of_reason(*reason),
            state => state.is_unleased().then_some(Self::Lease),
        }
    }

    fn of_reason(reason: WaitReason) -> Option<Self> {
        match reason {
            WaitReason::Rate => Some(Self::Rate),
            WaitReason::Delay => Some(Self::Delay),
            WaitReason::Linger => Some(Self::Batch),
            WaitReason::Lease => Some(Self::Lease),
            WaitReason::Load | WaitReason::Record => Some(Self::Store),
            WaitReason::Gap => Some(Self::Gap),
            WaitReason::Paused | WaitReason::HaltedGap | WaitReason::Empty => None,
        }
    }
}

/// Whether it waits for something else than a runner, its next attempt or a decision.
#[inline]
fn is_at_rest<T: Types>(lane: &Lane<T>) -> bool {
    let state = lane.state();
    matches!(state, State::Waiting { .. }) || state.is_unleased()
}
