//! The metrics of a stream.

use std::time::Duration;

use keylane_metrics::{EVERY, Figures, LabelNames, Labels, Metric, Row, published};
use tokio::time::sleep;

use super::lag::{Lag, LastLag};
use super::lease::StreamLease;
use super::worker::{Task, Worker};

const STREAM: LabelNames = LabelNames::new(&["source", "stream"]);

const LAG: Metric = STREAM.gauge(
    "keylane_source_stream_lag",
    "Entries that the group has not read; 0 while the server does not know it.",
);
const PENDING: Metric = STREAM.gauge(
    "keylane_source_stream_pending",
    "Entries that the group has read and not acked.",
);
const OLDEST: Metric = STREAM.gauge(
    "keylane_source_stream_oldest_seconds",
    "The age of the oldest entry that is not acked, by its id and the clock of the server.",
);

static ROWS: [Row<Lag>; 3] = [
    Row::new(LAG, |lag| lag.unread.unwrap_or_default()),
    Row::new(PENDING, |lag| lag.pending),
    Row::new(OLDEST, |lag| lag.oldest.as_secs()),
];

/// The metrics of streams.
pub(crate) fn published_of_streams() -> Vec<Metric> {
    published(&ROWS)
}

/// The pause after a question that failed.
const PAUSE: Duration = Duration::from_secs(60);

/// Publishes how far the group is behind in a stream that this process owns, and keeps it in
/// `last`, until the task is dropped. Without a recorder it asks only while something looks at the
/// streams. A question that fails is no failure of the stream.
pub(super) fn show_lag(worker: &Worker, lease: &StreamLease, last: &LastLag) -> Task {
    let labels = Labels::new().with("source", &worker.config.name());
    let figures = Figures::new(&ROWS, &labels.with("stream", &lease.place.name()));
    let (lease, last, shown) = (lease.clone(), last.clone(), worker.shown.clone());
    Task(tokio::spawn(async move {
        loop {
            if !figures.is_published() && !shown.is_looked_at() {
                // At the next look it is too old.
                last.set(None);
                shown.looked_at().await;
            }
            sleep(ask(&lease, &figures, &last).await).await;
        }
    }))
}

/// Asks once. Returns the pause until the next time.
async fn ask(lease: &StreamLease, figures: &Figures<Lag>, last: &LastLag) -> Duration {
    match lease.lag().await {
        Ok(lag) => {
            figures.show(|| lag);
            last.set(Some(lag));
            EVERY
        }
        Err(failure) => {
            tracing::debug!(
                target: "keylane",
                stream = %lease.place.name(),
                error = ?failure,
                "the lag of the stream is not known"
            );
            last.set(None);
            PAUSE
        }
    }
}
