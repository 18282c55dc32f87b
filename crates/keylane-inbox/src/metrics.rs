//! The metrics of an inbox in a directory.

use std::sync::Arc;

use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row, published, repeat};

use crate::error::StoreError;
use crate::store::{InboxStore, Stats};

const INBOX: LabelNames = LabelNames::new(&["inbox"]);

const WAITING: Metric = INBOX.gauge(
    "keylane_inbox_waiting",
    "Messages that wait or are being handled: the backlog of the inbox.",
);
const WAITING_BYTES: Metric = INBOX.gauge(
    "keylane_inbox_waiting_bytes",
    "The bytes of the records of those messages.",
);
const LETTERS: Metric = INBOX.gauge("keylane_inbox_letters", "Dead letters in the inbox.");
const LETTERS_BYTES: Metric = INBOX.gauge(
    "keylane_inbox_letters_bytes",
    "The bytes of the records of dead letters.",
);
const KNOWN: Metric = INBOX.gauge(
    "keylane_inbox_known",
    "Ids and versions that are remembered to absorb duplicates.",
);
const FILE_BYTES: Metric = INBOX.gauge(
    "keylane_inbox_file_bytes",
    "The bytes of the file, including its free space.",
);
const COMMITS: Metric = INBOX.counter("keylane_inbox_commits_total", "Commits.");
const FAILED_COMMITS: Metric =
    INBOX.counter("keylane_inbox_failed_commits_total", "Commits that failed.");
const COMPACTIONS: Metric = INBOX.counter(
    "keylane_inbox_compactions_total",
    "How often the file was compacted.",
);

static ROWS: [Row<Stats>; 9] = [
    Row::new(WAITING, |stats| stats.waiting),
    Row::new(WAITING_BYTES, |stats| stats.waiting_bytes),
    Row::new(LETTERS, |stats| stats.letters),
    Row::new(LETTERS_BYTES, |stats| stats.letters_bytes),
    Row::new(KNOWN, |stats| stats.known),
    Row::new(FILE_BYTES, |stats| stats.file_bytes),
    Row::new(COMMITS, |stats| stats.commits),
    Row::new(FAILED_COMMITS, |stats| stats.failed_commits),
    Row::new(COMPACTIONS, |stats| stats.compactions),
];

/// Returns the metrics that this crate publishes with the feature `metrics`. The label `inbox` is
/// its [name](crate::InboxBuilder::name).
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// Publishes the statistics of a store until it is closed or dropped.
pub(crate) fn publish(store: &Arc<dyn InboxStore>) {
    let labels = Labels::new().with("inbox", store.name());
    let store = Arc::downgrade(store);
    let figures = Arc::new(Figures::new(&ROWS, &labels));
    repeat(move || {
        let (store, figures) = (store.upgrade(), Arc::clone(&figures));
        async move {
            let Some(store) = store else {
                return false;
            };
            match store.stats().await {
                Ok(stats) => figures.show(|| stats),
                Err(StoreError::Closed) => return false,
                // The last ones stand. The store mends itself, and its users learn why it fails.
                Err(_) => {}
            }
            true
        }
    });
}
