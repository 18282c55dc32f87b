//! The metrics of a spool.

use std::future::ready;
use std::sync::Arc;

use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row, published, repeat};

use super::core::Stage;
use super::shared::Shared;
use super::stats::Stats;

const SPOOL: LabelNames = LabelNames::new(&["spool"]);

const ACCEPTED: Metric = SPOOL.counter("keylane_spool_accepted_total", "Messages accepted.");
const RECOVERED: Metric = SPOOL.counter(
    "keylane_spool_recovered_total",
    "Messages found in the directory when it was opened.",
);
const SETTLED: Metric = SPOOL
    .counter(
        "keylane_spool_settled_total",
        "Messages that have settled, by outcome: delivered, dead_lettered, dropped, skipped.",
    )
    .labels(&["spool", "outcome"]);
const OUT_OF_ORDER: Metric = SPOOL.counter(
    "keylane_spool_out_of_order_total",
    "Messages that the sink wrote ahead of an earlier one of their key: a defect of the sink.",
);
const FAILURES: Metric = SPOOL.counter(
    "keylane_spool_failures_total",
    "Batches and dead letters that failed.",
);
const WAITING: Metric = SPOOL.gauge(
    "keylane_spool_waiting",
    "Messages that have not settled: the depth of the spool.",
);
const WAITING_BYTES: Metric = SPOOL.gauge(
    "keylane_spool_waiting_bytes",
    "The bytes of those messages, in memory and on the disk.",
);
const MEMORY_BYTES: Metric = SPOOL.gauge(
    "keylane_spool_memory_bytes",
    "The bytes of messages in memory.",
);
const ON_DISK_ONLY: Metric = SPOOL.gauge(
    "keylane_spool_on_disk_only",
    "Messages on the disk and not in memory.",
);
const IN_FLIGHT: Metric = SPOOL.gauge("keylane_spool_in_flight", "Batches at the sink.");
const UNCONFIRMED: Metric = SPOOL.gauge(
    "keylane_spool_unconfirmed",
    "Settled messages whose removal from the disk is not confirmed.",
);
const HALTED_KEYS: Metric = SPOOL.gauge(
    "keylane_spool_halted_keys",
    "Keys that wait for the decision of an operator.",
);
const LETTERS_WAITING: Metric = SPOOL.gauge(
    "keylane_spool_letters_waiting",
    "Keys that wait for the dead letters to accept a message.",
);
const WAITING_PUSHES: Metric =
    SPOOL.gauge("keylane_spool_waiting_pushes", "Pushes that wait for room.");
const FAILING: Metric = SPOOL
    .gauge(
        "keylane_spool_failing",
        "Whether the sink, the dead letters or the disk fail, by part: sink, letters, disk.",
    )
    .labels(&["spool", "part"]);

static ROWS: [Row<Stats>; 20] = [
    Row::new(ACCEPTED, |stats| stats.accepted),
    Row::new(RECOVERED, |stats| stats.recovered),
    Row::labelled(SETTLED, ("outcome", "delivered"), |stats| stats.delivered),
    Row::labelled(SETTLED, ("outcome", "dead_lettered"), |stats| {
        stats.dead_lettered
    }),
    Row::labelled(SETTLED, ("outcome", "dropped"), |stats| stats.dropped),
    Row::labelled(SETTLED, ("outcome", "skipped"), |stats| stats.skipped),
    Row::new(OUT_OF_ORDER, |stats| stats.out_of_order),
    Row::new(FAILURES, |stats| stats.failures),
    Row::new(WAITING, |stats| stats.waiting),
    Row::new(WAITING_BYTES, |stats| stats.waiting_bytes),
    Row::new(MEMORY_BYTES, |stats| stats.memory_bytes as u64),
    Row::new(ON_DISK_ONLY, |stats| stats.on_disk_only),
    Row::new(IN_FLIGHT, |stats| stats.in_flight as u64),
    Row::new(UNCONFIRMED, |stats| stats.unconfirmed),
    Row::new(HALTED_KEYS, |stats| stats.halted_keys as u64),
    Row::new(LETTERS_WAITING, |stats| stats.letters_waiting as u64),
    Row::new(WAITING_PUSHES, |stats| stats.waiting_pushes as u64),
    Row::labelled(FAILING, ("part", "sink"), |stats| {
        u64::from(stats.failing.is_some())
    }),
    Row::labelled(FAILING, ("part", "letters"), |stats| {
        u64::from(stats.letters_failing.is_some())
    }),
    Row::labelled(FAILING, ("part", "disk"), |stats| {
        u64::from(stats.disk.is_some())
    }),
];

/// Returns the metrics that this crate publishes with the feature `metrics`. The label `spool` is
/// its [name](crate::SpoolBuilder::name).
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// Publishes the statistics of a spool until it has ended.
pub(super) fn publish(shared: &Arc<Shared>) {
    let labels = Labels::new().with("spool", &shared.name);
    let (shared, figures) = (Arc::clone(shared), Figures::new(&ROWS, &labels));
    repeat(move || {
        let has_ended = shared.with(|core| core.stage() == Stage::Ended);
        figures.show(|| Stats::new(shared.with(|core| core.view())));
        ready(!has_ended)
    });
}
