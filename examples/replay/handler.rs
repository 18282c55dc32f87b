//! What every design runs for every event.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::event::Event;
use crate::state::{Peak, Table};

/// The handler and all that it touches; shared by the tasks of a design.
#[derive(Debug)]
pub(crate) struct Handler {
    work: Duration,
    table: Table,
    waits: Waits,
    sent: AtomicU64,
    handled: AtomicU64,
    in_flight: Peak,
}

impl Handler {
    pub(crate) fn new(work: Duration) -> Self {
        Self {
            work,
            table: Table::default(),
            waits: Waits::default(),
            sent: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            in_flight: Peak::default(),
        }
    }

    /// Called for each event right before it goes to a design.
    pub(crate) fn sent(&self, event: &Event) {
        self.table.sent(event);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Handles one event: looks, works, applies.
    pub(crate) async fn handle(&self, event: Event) {
        self.in_flight.enter();
        self.waits.record(event.number, event.sent.elapsed());
        let turn = self.table.begin(&event);
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        self.table.end(event, turn);
        self.in_flight.leave();
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn in_flight(&self) -> &Peak {
        &self.in_flight
    }

    pub(crate) fn events_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn events_handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// How long events waited, in nanoseconds, from their send to the start of their handler.
    pub(crate) fn waits(&self) -> Histogram<u64> {
        self.waits.merged()
    }
}

/// Histograms enough that handlers seldom meet at one.
#[derive(Debug)]
struct Waits(Box<[Mutex<Histogram<u64>>]>);

impl Waits {
    fn record(&self, number: u64, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let mut waits = self.0[number as usize % self.0.len()]
            .lock()
            .expect(UNPOISONED);
        waits.saturating_record(nanos);
    }

    fn merged(&self) -> Histogram<u64> {
        let mut all = empty_histogram();
        for waits in &self.0 {
            all += &*waits.lock().expect(UNPOISONED);
        }
        all
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self((0..8).map(|_| Mutex::new(empty_histogram())).collect())
    }
}

const UNPOISONED: &str = "nothing panics while it holds the lock";

/// From 1 ns to a day, to two digits.
fn empty_histogram() -> Histogram<u64> {
    const DAY_NANOS: u64 = 86_400 * 1_000_000_000;
    Histogram::new_with_max(DAY_NANOS, 2).expect("the bounds are in order")
}
