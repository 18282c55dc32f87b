//! Asks now and then what waits in the tables, for the metrics.

use std::sync::Arc;
use std::time::Duration;

use keylane_metrics::{EVERY, Figures};
use tokio::time::{Instant, timeout};

use super::super::SqlInbox;
use super::super::backlog::Backlog;

/// The longest time for the question: the task that asks also frees the lanes of dead workers.
const LONGEST: Duration = Duration::from_secs(1);

/// The pause after a question that failed, or took longer.
const PAUSE: Duration = Duration::from_secs(60);

/// Publishes the backlog of an inbox.
pub(super) struct Look {
    figures: Arc<Figures<Backlog>>,
    next: Instant,
}

impl Look {
    pub(super) fn new(figures: Arc<Figures<Backlog>>) -> Self {
        Self {
            figures,
            next: Instant::now(),
        }
    }

    /// Asks, if there is a recorder and it is time. A question that fails is no failure of the
    /// source: the last numbers stay.
    pub(super) async fn look(&mut self, inbox: &SqlInbox) {
        if !self.figures.is_published() || Instant::now() < self.next {
            return;
        }
        let asked = timeout(LONGEST, inbox.shared.backend.backlog()).await;
        self.next = Instant::now()
            + match asked {
                Ok(Ok(backlog)) => {
                    self.figures.show(|| backlog);
                    EVERY
                }
                Ok(Err(error)) => {
                    tracing::debug!(target: "keylane", %error, "the backlog is not known");
                    PAUSE
                }
                Err(_) => {
                    tracing::debug!(target: "keylane", "the backlog was not known in time");
                    PAUSE
                }
            };
    }
}
