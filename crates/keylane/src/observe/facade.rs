//! What a dispatcher publishes. Without the feature `metrics` every call here does nothing.
//!
//! Names start with `keylane_`, times are in seconds, and no key is ever a label. A dispatcher
//! with a name carries it as the label `dispatcher`.

use std::time::Duration;

use keylane_metrics::{Figures, IfPublished, Labels, Metric, Row, Timer};
use keylane_rt::clock::{self, Instant};

use super::names;
use crate::observe::Stats;

/// The counters and gauges of a dispatcher. The outcomes add up to what was accepted.
static ROWS: [Row<Stats>; 26] = [
    Row::new(names::ACCEPTED, |stats| stats.accepted),
    settled("done", |stats| stats.done),
    settled("dead_lettered", |stats| stats.dead_lettered),
    settled("discarded", |stats| stats.discarded),
    settled("coalesced", |stats| stats.coalesced),
    settled("duplicate", |stats| stats.duplicates),
    settled("expired", |stats| stats.expired),
    settled("handed_back", |stats| stats.handed_back),
    Row::new(names::FAILURES, |stats| stats.failures),
    Row::new(names::RETRIES, |stats| stats.retries),
    Row::new(names::POSTPONED, |stats| stats.postponed),
    Row::new(names::PANICS, |stats| stats.panics),
    Row::new(names::TIMEOUTS, |stats| stats.timeouts),
    Row::new(names::LETTER_FAILURES, |stats| stats.letter_failures),
    Row::new(names::OVERFLOWED, |stats| stats.overflowed),
    Row::new(names::STUCK, |stats| stats.stuck),
    Row::new(names::IN_FLIGHT, |stats| stats.in_flight as u64),
    Row::new(names::READY, |stats| stats.ready as u64),
    Row::new(names::LANES, |stats| stats.lanes as u64),
    Row::new(names::BACKING_OFF, |stats| stats.backing_off as u64),
    Row::new(names::HALTED, |stats| stats.halted as u64),
    Row::new(names::PAUSED, |stats| stats.paused as u64),
    Row::new(names::FULL_LANES, |stats| stats.full_lanes as u64),
    Row::new(names::STALLED, |stats| stats.stalled as u64),
    Row::new(names::CAPACITY_LEFT, |stats| stats.capacity_left as u64),
    Row::new(names::CONCURRENCY_LIMIT, |stats| {
        stats.concurrency_limit as u64
    }),
];

const fn settled(outcome: &'static str, value: fn(&Stats) -> u64) -> Row<Stats> {
    Row::labelled(names::SETTLED, ("outcome", outcome), value)
}

/// What a dispatcher publishes, with all metrics.
pub(crate) fn published() -> Vec<Metric> {
    let mut all = keylane_metrics::published(&ROWS);
    all.extend([names::WAIT, names::ATTEMPT]);
    all
}

/// Handles are looked up once, when the dispatcher starts.
#[derive(Debug)]
pub(crate) struct Facade {
    figures: Figures<Stats>,
    wait: Timer,
    attempt: Timer,
}

impl Facade {
    pub(crate) fn new(name: Option<&str>) -> Self {
        let labels = Labels::new().with_some("dispatcher", name);
        Self {
            figures: Figures::new(&ROWS, &labels),
            wait: Timer::new(&names::WAIT, &labels),
            attempt: Timer::new(&names::ATTEMPT, &labels),
        }
    }

    /// Publishes a snapshot.
    pub(crate) fn publish(&self, stats: impl FnOnce() -> Stats) {
        self.figures.show(stats);
    }
}

/// Times one attempt.
#[derive(Debug)]
pub(crate) struct Stopwatch(IfPublished<Started>);

#[derive(Debug)]
struct Started {
    waited: Duration,
    at: Instant,
}

impl Stopwatch {
    #[inline]
    pub(crate) fn start(waited: impl FnOnce(Instant) -> Duration) -> Self {
        Self(IfPublished::new(|| {
            let at = clock::now();
            let waited = waited(at);
            Started { waited, at }
        }))
    }

    #[inline]
    pub(crate) fn stop(&self, facade: &Facade) {
        self.0.with(|started| {
            let lasted = clock::now().saturating_duration_since(started.at);
            facade.wait.record(started.waited);
            facade.attempt.record(lasted);
        });
    }
}
