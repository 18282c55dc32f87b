//! The gauges of lanes that wait, against the lanes.

use std::fmt;
use std::hash::Hash;

use keylane::Dispatcher;
use keylane::watching::LaneState;

/// Checks that the gauges of waiting lanes count the lanes of these keys, and no others.
///
/// # Panics
///
/// Panics if one of them does not.
pub fn check_waits<'k, K, M, O, E>(
    dispatcher: &Dispatcher<K, M, O, E>,
    keys: impl IntoIterator<Item = &'k K>,
) where
    K: Hash + Eq + Clone + Send + Sync + 'k + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    let views = keys.into_iter().filter_map(|key| dispatcher.inspect(key));
    let states: Vec<_> = views.map(|view| view.state).collect();
    let count = |is: fn(&LaneState) -> bool| states.iter().filter(|state| is(state)).count();
    let waiting = dispatcher.stats().waiting;
    let all = [
        (
            waiting.for_rate,
            count(|state| matches!(state, LaneState::RateLimited { .. })),
        ),
        (
            waiting.for_time,
            count(|state| matches!(state, LaneState::Delayed { .. })),
        ),
        (
            waiting.for_batch,
            count(|state| matches!(state, LaneState::Lingering { .. })),
        ),
        (
            waiting.for_lease,
            count(|state| matches!(state, LaneState::Leasing)),
        ),
        (
            waiting.for_store,
            count(|state| matches!(state, LaneState::Loading)),
        ),
        (waiting.for_versions, count(is_in_a_gap)),
    ];
    let agree = all.iter().all(|(is, should)| is == should);
    assert!(agree, "{waiting:?}: {states:?}");
}

/// Without a time the gap has halted the lane.
fn is_in_a_gap(state: &LaneState) -> bool {
    let LaneState::Gap { due_in, .. } = state else {
        return false;
    };
    due_in.is_some()
}
