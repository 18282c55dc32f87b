//! The metrics of leases.

use std::future::ready;
use std::sync::Arc;

use keylane_metrics::{Figures, Labels, Metric, Row, published, repeat};

use crate::counts::LeaseCounts;
use crate::shared::Shared;

const HELD: Metric = Metric::gauge(
    "keylane_lease_held",
    "Leases that this process holds or asks for.",
);
const ROOM: Metric = Metric::gauge(
    "keylane_lease_room",
    "Further leases that this process may hold or ask for.",
);
const GRANTED: Metric = Metric::counter(
    "keylane_lease_granted_total",
    "Leases that the store has granted.",
);
const TAKEN: Metric = Metric::counter(
    "keylane_lease_taken_total",
    "Requests for leases that another process had.",
);
const LOST: Metric = Metric::counter(
    "keylane_lease_lost_total",
    "Leases that were lost while they were held, by reason: ran_out, taken_over.",
)
.labels(&["reason"]);
const FAILED_CALLS: Metric = Metric::counter(
    "keylane_lease_failed_calls_total",
    "Calls to the store that failed, by kind: acquire, renew, release.",
)
.labels(&["call"]);

static ROWS: [Row<LeaseCounts>; 9] = [
    Row::new(HELD, |counts| counts.held),
    Row::new(ROOM, |counts| counts.room),
    Row::new(GRANTED, |counts| counts.granted),
    Row::new(TAKEN, |counts| counts.taken),
    Row::labelled(LOST, ("reason", "ran_out"), |counts| counts.ran_out),
    Row::labelled(LOST, ("reason", "taken_over"), |counts| counts.taken_over),
    Row::labelled(FAILED_CALLS, ("call", "acquire"), |counts| {
        counts.failed_acquires
    }),
    Row::labelled(FAILED_CALLS, ("call", "renew"), |counts| {
        counts.failed_renewals
    }),
    Row::labelled(FAILED_CALLS, ("call", "release"), |counts| {
        counts.failed_releases
    }),
];

/// Returns the metrics that this crate publishes with the feature `metrics`: the sums over all
/// leases of the process.
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// Publishes the counters until the leases are closed, or their task has ended.
pub(crate) fn publish(shared: &Arc<Shared>) {
    let (shared, figures) = (Arc::clone(shared), Figures::new(&ROWS, &Labels::new()));
    repeat(move || {
        let is_closed = shared.is_closed();
        figures.show(|| shared.counts());
        ready(!is_closed)
    });
}
