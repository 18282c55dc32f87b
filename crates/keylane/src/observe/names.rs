//! The metrics of this crate: their names, their labels, and what they mean.

use keylane_metrics::{LabelNames, Metric};

const DISPATCHER: LabelNames = LabelNames::new(&["dispatcher"]);
const SOURCE: LabelNames = LabelNames::new(&["dispatcher", "source"]);

pub(crate) const ACCEPTED: Metric = DISPATCHER.counter(
    "keylane_accepted_total",
    "Messages that the dispatcher has accepted.",
);
pub(crate) const SETTLED: Metric = DISPATCHER
    .counter(
        "keylane_settled_total",
        "Messages that have settled, by outcome.",
    )
    .labels(&["dispatcher", "outcome"]);
pub(crate) const FAILURES: Metric =
    DISPATCHER.counter("keylane_attempt_failures_total", "Attempts that failed.");
pub(crate) const RETRIES: Metric =
    DISPATCHER.counter("keylane_retries_total", "Attempts after the first.");
pub(crate) const POSTPONED: Metric = DISPATCHER.counter(
    "keylane_postponed_total",
    "Retries that waited longer for the retry budget.",
);
pub(crate) const PANICS: Metric = DISPATCHER.counter(
    "keylane_panics_total",
    "Attempts, or drops of a value, that panicked.",
);
pub(crate) const TIMEOUTS: Metric = DISPATCHER.counter(
    "keylane_timeouts_total",
    "Attempts that were dropped at their time-out.",
);
pub(crate) const LETTER_FAILURES: Metric = DISPATCHER.counter(
    "keylane_letter_failures_total",
    "Refusals of a letter by a dead-letter sink.",
);
pub(crate) const OVERFLOWED: Metric = DISPATCHER.counter(
    "keylane_overflowed_total",
    "Messages that met a full lane after they were accepted.",
);
pub(crate) const STUCK: Metric = DISPATCHER.counter(
    "keylane_stuck_total",
    "Handlers that were found to block their thread.",
);
pub(crate) const IN_FLIGHT: Metric = DISPATCHER.gauge("keylane_in_flight", "Handlers in flight.");
pub(crate) const READY: Metric =
    DISPATCHER.gauge("keylane_ready", "Lanes whose head waits for a runner.");
pub(crate) const LANES: Metric =
    DISPATCHER.gauge("keylane_lanes", "Lanes that hold or run something.");
pub(crate) const BACKING_OFF: Metric = DISPATCHER.gauge(
    "keylane_backing_off",
    "Lanes that wait for a retry or a dead-letter sink.",
);
pub(crate) const HALTED: Metric = DISPATCHER.gauge(
    "keylane_halted",
    "Lanes that wait for the decision of an operator.",
);
pub(crate) const PAUSED: Metric = DISPATCHER.gauge("keylane_paused", "Lanes that are paused.");
pub(crate) const FULL_LANES: Metric =
    DISPATCHER.gauge("keylane_full_lanes", "Lanes at their capacity.");
pub(crate) const STALLED: Metric = DISPATCHER.gauge(
    "keylane_stalled",
    "Messages of failing and flooded keys, counted apart from the capacity.",
);
pub(crate) const CAPACITY_LEFT: Metric =
    DISPATCHER.gauge("keylane_capacity_left", "Messages that there is room for.");
pub(crate) const CONCURRENCY_LIMIT: Metric = DISPATCHER.gauge(
    "keylane_concurrency_limit",
    "The current maximum of handlers in flight.",
);
pub(crate) const WAIT: Metric = DISPATCHER.histogram(
    "keylane_wait_seconds",
    "The time from the acceptance of a message, or from its last attempt, to an attempt.",
);
pub(crate) const ATTEMPT: Metric =
    DISPATCHER.histogram("keylane_attempt_seconds", "The duration of an attempt.");

pub(crate) const SOURCE_STATE: Metric = SOURCE
    .gauge(
        "keylane_source_state",
        "Sources in each state: opening, running, paused, stopping.",
    )
    .labels(&["dispatcher", "source", "state"]);
pub(crate) const SOURCE_RECEIVED: Metric = SOURCE.counter(
    "keylane_source_received_total",
    "Messages that the source has handed over.",
);
pub(crate) const SOURCE_SETTLED: Metric = SOURCE
    .counter(
        "keylane_source_settled_total",
        "Messages that the source was told of, by outcome; acks when they are confirmed.",
    )
    .labels(&["dispatcher", "source", "outcome"]);
pub(crate) const SOURCE_STALE: Metric = SOURCE.counter(
    "keylane_source_stale_total",
    "Messages that were handled, and whose ack came too late to be told: they may come again.",
);
pub(crate) const SOURCE_ERRORS: Metric = SOURCE
    .counter(
        "keylane_source_errors_total",
        "Failures of the source, by kind: failed, stalled.",
    )
    .labels(&["dispatcher", "source", "kind"]);
pub(crate) const SOURCE_RESTARTS: Metric = SOURCE.counter(
    "keylane_source_restarts_total",
    "How often the source was opened again.",
);
pub(crate) const SOURCE_HELD: Metric = SOURCE.gauge(
    "keylane_source_held",
    "Messages of the source that are here and have not settled.",
);
pub(crate) const SOURCE_HELD_BYTES: Metric = SOURCE.gauge(
    "keylane_source_held_bytes",
    "The bytes of those messages, without the deferred ones.",
);
pub(crate) const SOURCE_ASIDE: Metric = SOURCE.gauge(
    "keylane_source_aside",
    "Messages that wait beside full lanes.",
);
pub(crate) const SOURCE_DEFERRED: Metric = SOURCE.gauge(
    "keylane_source_deferred",
    "Messages beside full lanes that are read again later.",
);
pub(crate) const SOURCE_UNCONFIRMED: Metric = SOURCE.gauge(
    "keylane_source_unconfirmed",
    "Acks that the source was told and has not confirmed.",
);
pub(crate) const SOURCE_FAILING: Metric = SOURCE.gauge(
    "keylane_source_failing",
    "Sources that have failed and have not worked since.",
);
pub(crate) const SOURCE_FAILED_PARTS: Metric = SOURCE.gauge(
    "keylane_source_failed_parts",
    "Parts of the source that fail while the others go on.",
);
