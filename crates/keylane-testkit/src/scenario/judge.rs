//! Judges the whole history of a dispatcher.

use std::fmt;
use std::hash::Hash;

use keylane::watching::WaitingLanes;
use keylane::{Dispatcher, Report};
use tokio::time::Instant;

use super::engine_panics::assert_no_engine_panics;
use crate::check::{Drained, Evidence, Rule, Verdict};
use crate::history::History;

/// The rules that can judge every complete history of a dispatcher.
pub const RULES_OF_A_WHOLE_LIFE: [Rule; 6] = [
    Rule::NoLoss,
    Rule::NoInvention,
    Rule::Exclusion,
    Rule::Order,
    Rule::Duplicates,
    Rule::Drain,
];

/// Judges a complete history. The dispatcher has ended with the report in `drained`.
///
/// Adds to `evidence` what the dispatcher reports. Asserts that the dispatcher holds nothing and
/// that no task of an engine has panicked.
///
/// # Panics
///
/// Panics if a rule is broken, with the violations.
#[track_caller]
pub fn judge<K, M, O, E>(
    history: &History,
    dispatcher: &Dispatcher<K, M, O, E>,
    drained: Drained,
    evidence: Evidence,
) -> Verdict
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    let evidence = evidence
        .quiescent(Instant::now())
        .lanes(dispatcher.stats().lanes)
        .drained(drained);
    assert_no_engine_panics();
    assert_nothing_left(dispatcher);
    match history.check(&evidence) {
        Ok(verdict) => verdict,
        Err(violations) => panic!("{violations:?}"),
    }
}

/// Asserts that the dispatcher holds no lane and no message.
///
/// # Panics
///
/// Panics if the dispatcher holds any, with the rest.
#[track_caller]
pub fn assert_nothing_left<K, M, O, E>(dispatcher: &Dispatcher<K, M, O, E>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    let stats = dispatcher.stats();
    let left = [
        ("lanes", stats.lanes),
        ("in flight", stats.in_flight),
        ("ready", stats.ready),
        ("backing off", stats.backing_off),
        ("halted", stats.halted),
        ("paused", stats.paused),
        ("full lanes", stats.full_lanes),
        ("stalled", stats.stalled),
    ];
    assert!(left.iter().all(|(_, count)| *count == 0), "left: {left:?}");
    assert_eq!(stats.waiting, WaitingLanes::default());
}

/// Asserts that the report counts exactly one outcome for every accepted message.
///
/// # Panics
///
/// Panics if the outcomes do not add up, with the report.
#[track_caller]
pub fn assert_report_adds_up<K, M>(report: &Report<K, M>) {
    let handled = report.done + report.dead_lettered + report.discarded;
    let others = report.coalesced + report.duplicates + report.expired + report.handed_back;
    assert_eq!(handled + others, report.accepted, "{report:?}");
}
