//! What an intake publishes.

use keylane_metrics::{Figures, Labels, Metric, Row};

use super::report::{IntakeState, IntakeStats};
use crate::observe::names;

/// The counters and gauges of an intake.
static ROWS: [Row<IntakeStats>; 20] = [
    state("opening", |stats| is(stats, IntakeState::Opening)),
    state("running", |stats| is(stats, IntakeState::Running)),
    state("paused", |stats| is(stats, IntakeState::Paused)),
    state("stopping", |stats| is(stats, IntakeState::Stopping)),
    Row::new(names::SOURCE_RECEIVED, |stats| stats.received),
    // What is not confirmed may come again: it is no counter.
    settled("acked", |stats| {
        stats.acked.saturating_sub(stats.unconfirmed)
    }),
    settled("dead_lettered", |stats| stats.dead_lettered),
    settled("nacked", |stats| stats.nacked),
    settled("given_back", |stats| stats.given_back),
    Row::new(names::SOURCE_STALE, |stats| stats.stale),
    error("failed", |stats| {
        stats.failures.saturating_sub(stats.stalls)
    }),
    error("stalled", |stats| stats.stalls),
    Row::new(names::SOURCE_RESTARTS, |stats| stats.restarts),
    Row::new(names::SOURCE_HELD, |stats| stats.held as u64),
    Row::new(names::SOURCE_HELD_BYTES, |stats| stats.held_bytes as u64),
    Row::new(names::SOURCE_ASIDE, |stats| stats.aside as u64),
    Row::new(names::SOURCE_DEFERRED, |stats| stats.deferred as u64),
    Row::new(names::SOURCE_UNCONFIRMED, |stats| stats.unconfirmed),
    Row::new(names::SOURCE_FAILING, |stats| {
        u64::from(stats.failing_since.is_some())
    }),
    Row::new(names::SOURCE_FAILED_PARTS, |stats| {
        stats.failed_parts.len() as u64
    }),
];

const fn state(name: &'static str, value: fn(&IntakeStats) -> u64) -> Row<IntakeStats> {
    Row::labelled(names::SOURCE_STATE, ("state", name), value)
}

const fn settled(outcome: &'static str, value: fn(&IntakeStats) -> u64) -> Row<IntakeStats> {
    Row::labelled(names::SOURCE_SETTLED, ("outcome", outcome), value)
}

const fn error(kind: &'static str, value: fn(&IntakeStats) -> u64) -> Row<IntakeStats> {
    Row::labelled(names::SOURCE_ERRORS, ("kind", kind), value)
}

fn is(stats: &IntakeStats, state: IntakeState) -> u64 {
    u64::from(stats.state == state)
}

/// The metrics of an intake.
pub(crate) fn published() -> Vec<Metric> {
    keylane_metrics::published(&ROWS)
}

/// Looks up the handles for a source of a dispatcher.
pub(super) fn figures(dispatcher: Option<&str>, source: &str) -> Figures<IntakeStats> {
    let labels = Labels::new()
        .with_some("dispatcher", dispatcher)
        .with("source", source);
    Figures::new(&ROWS, &labels)
}
