//! The figures of the overview. Pure.

use keylane::consume::{IntakeState, IntakeStats};
use keylane::source::Hold;
use keylane::watching::Stats;
use serde::Serialize;
use tokio::time::Instant;

use crate::parts::PartRow;
use crate::rows::{cut, ms};
use crate::times::Percentiles;

/// One dispatcher.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) closed: bool,
    pub(crate) accepted: u64,
    pub(crate) done: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) discarded: u64,
    pub(crate) coalesced: u64,
    pub(crate) duplicates: u64,
    pub(crate) expired: u64,
    pub(crate) handed_back: u64,
    /// Accepted and not settled.
    pub(crate) waiting: u64,
    pub(crate) failures: u64,
    pub(crate) panics: u64,
    pub(crate) timeouts: u64,
    pub(crate) retries: u64,
    pub(crate) stuck: u64,
    pub(crate) capacity_left: usize,
    pub(crate) concurrency_limit: usize,
    pub(crate) full_lanes: usize,
    pub(crate) stalled: usize,
    pub(crate) lanes: usize,
    pub(crate) reasons: Reasons,
    pub(crate) times: Percentiles,
}

/// The lanes by what they wait for. The parts add up to `lanes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Reasons {
    pub(crate) in_flight: usize,
    pub(crate) ready: usize,
    pub(crate) backing_off: usize,
    pub(crate) halted: usize,
    pub(crate) paused: usize,
    pub(crate) for_rate: usize,
    pub(crate) for_time: usize,
    pub(crate) for_batch: usize,
    pub(crate) for_lease: usize,
    pub(crate) for_store: usize,
    pub(crate) for_versions: usize,
    /// What the gauges have not counted at this moment.
    pub(crate) other: usize,
}

impl Reasons {
    /// The gauges are of slightly different moments, and keyless messages have no lane: each part
    /// has what the ones before have left.
    fn of(stats: &Stats) -> Self {
        let mut left = stats.lanes;
        let mut take = |count: usize| {
            let taken = count.min(left);
            left -= taken;
            taken
        };
        Self {
            halted: take(stats.halted),
            paused: take(stats.paused),
            for_rate: take(stats.waiting.for_rate),
            for_time: take(stats.waiting.for_time),
            for_batch: take(stats.waiting.for_batch),
            for_lease: take(stats.waiting.for_lease),
            for_store: take(stats.waiting.for_store),
            for_versions: take(stats.waiting.for_versions),
            backing_off: take(stats.backing_off),
            in_flight: take(stats.in_flight),
            ready: take(stats.ready),
            other: left,
        }
    }
}

impl Summary {
    pub(crate) fn of(name: &str, closed: bool, stats: &Stats) -> Self {
        let given_up = stats.dead_lettered + stats.discarded + stats.handed_back;
        let settled = stats.done + given_up + stats.coalesced + stats.duplicates + stats.expired;
        // `accepted` is counted when a message is taken from the channel, and is read first: what
        // has settled since then was accepted too.
        let accepted = stats.accepted.max(settled);
        Self {
            name: name.to_owned(),
            closed,
            accepted,
            done: stats.done,
            dead_lettered: stats.dead_lettered,
            discarded: stats.discarded,
            coalesced: stats.coalesced,
            duplicates: stats.duplicates,
            expired: stats.expired,
            handed_back: stats.handed_back,
            waiting: accepted - settled,
            failures: stats.failures,
            panics: stats.panics,
            timeouts: stats.timeouts,
            retries: stats.retries,
            stuck: stats.stuck,
            capacity_left: stats.capacity_left,
            concurrency_limit: stats.concurrency_limit,
            full_lanes: stats.full_lanes,
            stalled: stats.stalled,
            lanes: stats.lanes,
            reasons: Reasons::of(stats),
            times: Percentiles::default(),
        }
    }

    /// What the chart needs: accepted, done, failed attempts.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.accepted, self.done, self.failures]
    }
}

/// One intake.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SourceSummary {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) received: u64,
    pub(crate) acked: u64,
    /// Those of the acked that the source has not confirmed.
    pub(crate) unconfirmed: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) nacked: u64,
    pub(crate) given_back: u64,
    pub(crate) held: usize,
    pub(crate) held_bytes: usize,
    pub(crate) aside: usize,
    pub(crate) deferred: usize,
    pub(crate) stale: u64,
    pub(crate) restarts: u64,
    /// For how long its messages are held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<HoldRow>,
    pub(crate) last_error: Option<String>,
    pub(crate) failed_parts: Vec<Part>,
    /// Failed parts that are not in the list.
    pub(crate) more_parts: usize,
    /// All parts, if the service shows them: those in trouble first, then by their lag.
    pub(crate) parts: Vec<PartRow>,
    pub(crate) other_parts: usize,
}

/// For how long the messages of a source are held, unless that is extended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct HoldRow {
    lasts_ms: u64,
    /// The time that is left; 0 if others may have the messages.
    left_ms: u64,
    /// The time since the last extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_ms: Option<u64>,
}

impl HoldRow {
    fn of(hold: Hold, now: Instant) -> Self {
        let since = |at: Instant| ms(now.saturating_duration_since(at));
        Self {
            lasts_ms: ms(hold.lasts),
            left_ms: ms(hold.until.saturating_duration_since(now)),
            extended_ms: hold.extended_at().map(since),
        }
    }
}

/// A part of a source that fails.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    pub(crate) why: String,
    pub(crate) times: u64,
}

/// Most failed parts of a source in the feed.
const MOST_PARTS: usize = 32;

impl SourceSummary {
    pub(crate) fn of(name: &str, stats: IntakeStats) -> Self {
        let parts = stats
            .failed_parts
            .iter()
            .take(MOST_PARTS)
            .map(|failed| Part {
                part: cut(&failed.part),
                why: cut(&failed.why),
                times: failed.times,
            });
        Self {
            name: name.to_owned(),
            state: match stats.state {
                IntakeState::Opening => "opening",
                IntakeState::Running => "running",
                IntakeState::Paused => "paused",
                IntakeState::Stopping => "stopping",
                IntakeState::Ended => "ended",
                _ => "unknown",
            },
            received: stats.received,
            acked: stats.acked,
            unconfirmed: stats.unconfirmed,
            dead_lettered: stats.dead_lettered,
            nacked: stats.nacked,
            given_back: stats.given_back,
            held: stats.held,
            held_bytes: stats.held_bytes,
            aside: stats.aside,
            deferred: stats.deferred,
            stale: stats.stale,
            restarts: stats.restarts,
            hold: stats.hold.map(|hold| HoldRow::of(hold, Instant::now())),
            last_error: stats.last_error.as_deref().map(cut),
            failed_parts: parts.collect(),
            more_parts: stats.failed_parts.len().saturating_sub(MOST_PARTS),
            parts: Vec::new(),
            other_parts: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stats(change: impl FnOnce(&mut Stats)) -> Stats {
        let mut stats = Stats::default();
        change(&mut stats);
        stats
    }

    #[test]
    fn done_is_never_above_accepted() {
        let read_early = stats(|it| (it.accepted, it.done, it.expired) = (10, 11, 2));
        let summary = Summary::of("orders", false, &read_early);
        assert_eq!(
            (summary.accepted, summary.done, summary.waiting),
            (13, 11, 0)
        );
        let usual = stats(|it| (it.accepted, it.done) = (10, 4));
        assert_eq!(Summary::of("orders", false, &usual).waiting, 6);
    }

    #[test]
    fn a_hold_that_is_over_has_no_time_left() {
        let (sent, second) = (Instant::now(), Duration::from_secs(1));
        let hold = Hold::new(9 * second, sent + 9 * second);
        let row = |after| {
            let row = HoldRow::of(hold, sent + after);
            (row.lasts_ms, row.left_ms, row.extended_ms)
        };
        assert_eq!(row(2 * second), (9_000, 7_000, Some(2_000)));
        assert_eq!(row(10 * second), (9_000, 0, Some(10_000)));
    }

    #[test]
    fn the_reasons_add_up_to_the_lanes() {
        let several = stats(|it| {
            (it.lanes, it.halted, it.paused, it.in_flight, it.ready) = (10, 1, 2, 9, 3);
            (it.waiting.for_rate, it.waiting.for_lease) = (1, 2);
        });
        let reasons = serde_json::to_value(Reasons::of(&several)).unwrap();
        let counts = reasons.as_object().unwrap();
        let counted: Vec<_> = counts.iter().filter(|(_, count)| **count != 0).collect();
        let mut counted: Vec<_> = counted
            .into_iter()
            .map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
            .collect();
        counted.sort_unstable();
        let mut should = [
            ("halted", 1),
            ("paused", 2),
            ("for_rate", 1),
            ("for_lease", 2),
            ("in_flight", 4),
        ];
        should.sort_unstable();
        assert_eq!(counted, should);
    }
}
