//! The figures of the service, as JSON: for programs, and to know when there are too many orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_inbox::Inbox;
use keylane_inbox::error::StoreError;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::shop::Lanes;

/// What `GET /stats` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    /// Since the start, as the next one.
    accepted: u64,
    done: u64,
    /// With their handlers.
    in_flight: usize,
    /// On the disk: waiting, or with their handlers.
    waiting: u64,
    dead_letters: u64,
}

/// Counts the orders of a service. Clones are the same counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Arc<Counts>);

/// Relaxed, both of them: they are statistics.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    waiting: AtomicU64,
}

impl Figures {
    /// Counts what waits, once a second, until the lanes are closed.
    pub(crate) async fn start(inbox: &Inbox, lanes: &Lanes) -> Result<Self, StoreError> {
        let figures = Self::default();
        figures.count(inbox).await?;
        tokio::spawn({
            let (figures, inbox, lanes) = (figures.clone(), inbox.clone(), lanes.clone());
            async move {
                let mut second = interval(Duration::from_secs(1));
                second.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !lanes.is_closed() {
                    second.tick().await;
                    // A store that cannot be read now may be read in a second; the routes say why.
                    let _ = figures.count(&inbox).await;
                }
            }
        });
        Ok(figures)
    }

    /// An order was stored.
    pub(crate) fn accepted(&self) {
        self.0.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Orders that wait on the disk, as of a second ago.
    pub(crate) fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// All figures, as of now.
    pub(crate) async fn stats(&self, inbox: &Inbox, lanes: &Lanes) -> Result<Stats, StoreError> {
        let stored = inbox.stats().await?;
        let stats = lanes.stats();
        Ok(Stats {
            accepted: self.0.accepted.load(Ordering::Relaxed),
            done: stats.done,
            in_flight: stats.in_flight,
            waiting: stored.waiting,
            dead_letters: stored.letters,
        })
    }

    async fn count(&self, inbox: &Inbox) -> Result<(), StoreError> {
        let stats = inbox.stats().await?;
        self.0.waiting.store(stats.waiting, Ordering::Relaxed);
        Ok(())
    }
}
