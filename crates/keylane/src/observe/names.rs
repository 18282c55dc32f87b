//! The metrics of this crate: their names, their labels, and what they mean.

use keylane_metrics::Metric;

const DISPATCHER: &[&str] = &["dispatcher"];
const SOURCE: &[&str] = &["dispatcher", "source"];

const fn total(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, help).labels(DISPATCHER)
}

const fn level(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, help).labels(DISPATCHER)
}

const fn seconds(name: &'static str, help: &'static str) -> Metric {
    Metric::histogram(name, help).labels(DISPATCHER)
}

const fn source_total(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, help).labels(SOURCE)
}

const fn source_level(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, help).labels(SOURCE)
}

pub(crate) const ACCEPTED: Metric = total(
    "keylane_accepted_total",
    "Messages that the dispatcher has accepted.",
);
pub(crate) const SETTLED: Metric = total(
    "keylane_settled_total",
    "Messages that have settled, by outcome.",
)
.labels(&["dispatcher", "outcome"]);
pub(crate) const FAILURES: Metric =
    total("keylane_attempt_failures_total", "Attempts that failed.");
pub(crate) const RETRIES: Metric = total("keylane_retries_total", "Attempts after the first.");
pub(crate) const POSTPONED: Metric = total(
    "keylane_postponed_total",
    "Retries that waited longer for the retry budget.",
);
pub(crate) const PANICS: Metric = total(
    "keylane_panics_total",
    "Attempts, or drops of a value, that panicked.",
);
pub(crate) const TIMEOUTS: Metric = total(
    "keylane_timeouts_total",
    "Attempts that were dropped at their time-out.",
);
pub(crate) const LETTER_FAILURES: Metric = total(
    "keylane_letter_failures_total",
    "Refusals of a letter by a dead-letter sink.",
);
pub(crate) const OVERFLOWED: Metric = total(
    "keylane_overflowed_total",
    "Messages that met a full lane after they were accepted.",
);
pub(crate) const STUCK: Metric = total(
    "keylane_stuck_total",
    "Handlers that were found to block their thread.",
);
pub(crate) const IN_FLIGHT: Metric = level("keylane_in_flight", "Handlers in flight.");
pub(crate) const READY: Metric = level("keylane_ready", "Lanes whose head waits for a runner.");
pub(crate) const LANES: Metric = level("keylane_lanes", "Lanes that hold or run something.");
pub(crate) const BACKING_OFF: Metric = level(
    "keylane_backing_off",
    "Lanes that wait for a retry or a dead-letter sink.",
);
pub(crate) const HALTED: Metric = level(
    "keylane_halted",
    "Lanes that wait for the decision of an operator.",
);
pub(crate) const PAUSED: Metric = level("keylane_paused", "Lanes that are paused.");
pub(crate) const FULL_LANES: Metric = level("keylane_full_lanes", "Lanes at their capacity.");
pub(crate) const STALLED: Metric = level(
    "keylane_stalled",
    "Messages of failing and flooded keys, counted apart from the capacity.",
);
pub(crate) const CAPACITY_LEFT: Metric =
    level("keylane_capacity_left", "Messages that there is room for.");
pub(crate) const CONCURRENCY_LIMIT: Metric = level(
    "keylane_concurrency_limit",
    "The current maximum of handlers in flight.",
);
pub(crate) const WAIT: Metric = seconds(
    "keylane_wait_seconds",
    "The time from the acceptance of a message, or from its last attempt, to an attempt.",
);
pub(crate) const ATTEMPT: Metric =
    seconds("keylane_attempt_seconds", "The duration of an attempt.");

pub(crate) const SOURCE_STATE: Metric = source_level(
    "keylane_source_state",
    "Sources in each state: opening, running, paused, stopping.",
)
.labels(&["dispatcher", "source", "state"]);
pub(crate) const SOURCE_RECEIVED: Metric = source_total(
    "keylane_source_received_total",
    "Messages that the source has handed over.",
);
pub(crate) const SOURCE_SETTLED: Metric = source_total(
    "keylane_source_settled_total",
    "Messages that the source was told of, by outcome; acks when they are confirmed.",
)
.labels(&["dispatcher", "source", "outcome"]);
pub(crate) const SOURCE_STALE: Metric = source_total(
    "keylane_source_stale_total",
    "Messages that were handled, and whose ack came too late to be told: they may come again.",
);
pub(crate) const SOURCE_ERRORS: Metric = source_total(
    "keylane_source_errors_total",
    "Failures of the source, by kind: failed, stalled.",
)
.labels(&["dispatcher", "source", "kind"]);
pub(crate) const SOURCE_RESTARTS: Metric = source_total(
    "keylane_source_restarts_total",
    "How often the source was opened again.",
);
pub(crate) const SOURCE_HELD: Metric = source_level(
    "keylane_source_held",
    "Messages of the source that are here and have not settled.",
);
pub(crate) const SOURCE_HELD_BYTES: Metric = source_level(
    "keylane_source_held_bytes",
    "The bytes of those messages, without the deferred ones.",
);
pub(crate) const SOURCE_ASIDE: Metric = source_level(
    "keylane_source_aside",
    "Messages that wait beside full lanes.",
);
pub(crate) const SOURCE_DEFERRED: Metric = source_level(
    "keylane_source_deferred",
    "Messages beside full lanes that are read again later.",
);
pub(crate) const SOURCE_UNCONFIRMED: Metric = source_level(
    "keylane_source_unconfirmed",
    "Acks that the source was told and has not confirmed.",
);
pub(crate) const SOURCE_FAILING: Metric = source_level(
    "keylane_source_failing",
    "Sources that have failed and have not worked since.",
);
pub(crate) const SOURCE_FAILED_PARTS: Metric = source_level(
    "keylane_source_failed_parts",
    "Parts of the source that fail while the others go on.",
);
