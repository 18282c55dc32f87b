//! What waits in the tables, as the metrics show it: never by a count of all rows.

use std::time::Duration;

use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row, published};

const SOURCE: LabelNames = LabelNames::new(&["source"]);

const WAITING: Metric = SOURCE.gauge(
    "keylane_source_inbox_waiting",
    "Messages that wait, above 10,000 an estimate. Each process shows all: take the maximum.",
);
const LETTERS: Metric = SOURCE.gauge(
    "keylane_source_inbox_letters",
    "Dead letters, up to 10,000 of them. Each process shows all: take the maximum.",
);
const OLDEST: Metric = SOURCE.gauge(
    "keylane_source_inbox_oldest_seconds",
    "The age of the first message that waits. Each process shows the same: take the maximum.",
);

static ROWS: [Row<Backlog>; 3] = [
    Row::shared(WAITING, |backlog| backlog.waiting()),
    Row::shared(LETTERS, |backlog| backlog.letters.min(COUNTED)),
    Row::shared(OLDEST, |backlog| backlog.oldest.as_secs()),
];

/// Returns the metrics that this crate publishes with the feature `metrics`. What the dispatcher
/// knows of a source, and what leases and elections know, is in the crates of these.
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// The most rows of a table that are counted.
const COUNTED: u64 = 10_000;

/// The most rows of a table that are looked at: with one more than are counted there are too many.
pub(super) const LOOKED_AT: u64 = COUNTED + 1;

/// What waits in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    /// Messages, up to [`LOOKED_AT`].
    pub(super) counted: u64,
    /// How many messages the database believes there are. Asked for if that many were counted.
    pub(super) estimated: u64,
    /// Letters, up to [`LOOKED_AT`].
    pub(super) letters: u64,
    /// The age of the message with the lowest sequence.
    pub(super) oldest: Duration,
}

impl Backlog {
    fn waiting(&self) -> u64 {
        match self.counted < LOOKED_AT {
            true => self.counted,
            false => self.estimated.max(self.counted),
        }
    }
}

/// Looks up the handles for a source.
pub(super) fn figures(source: &str) -> Figures<Backlog> {
    Figures::new(&ROWS, &Labels::new().with("source", source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_backlog_is_counted_and_a_large_one_is_estimated() {
        let backlog = |counted, estimated| Backlog {
            counted,
            estimated,
            ..Backlog::default()
        };
        assert_eq!(backlog(COUNTED, 7).waiting(), COUNTED);
        assert_eq!(
            backlog(LOOKED_AT, 7).waiting(),
            LOOKED_AT,
            "an outdated estimate"
        );
        assert_eq!(backlog(LOOKED_AT, 70_000).waiting(), 70_000);
    }
}
