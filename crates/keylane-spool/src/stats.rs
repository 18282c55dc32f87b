//! The statistics of a spool.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::core::{Fault, View};
use super::journal::DiskError;

/// Counters since the spool was opened, and gauges.
///
/// `accepted + recovered = delivered + dead_lettered + dropped + skipped + waiting`, except that
/// under [`Persist::Each`](super::Persist::Each) `waiting` includes messages that are being stored
/// and not yet accepted.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Stats {
    /// Messages accepted.
    pub accepted: u64,
    /// Messages found in the directory when it was opened.
    pub recovered: u64,
    /// Messages that the sink has confirmed.
    pub delivered: u64,
    /// Messages that the sink refused and the dead letters have accepted.
    pub dead_lettered: u64,
    /// Messages dropped under [`AtLimit::DropOldest`](super::AtLimit::DropOldest).
    pub dropped: u64,
    /// Messages removed with [`Spool::skip`](super::Spool::skip).
    pub skipped: u64,
    /// Messages that the sink wrote ahead of an earlier one of their key: a defect of the sink.
    pub out_of_order: u64,
    /// Batches and dead letters that failed.
    pub failures: u64,

    /// Messages that have none of these outcomes.
    pub waiting: u64,
    /// Their bytes, in memory and on the disk.
    pub waiting_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: usize,
    /// Messages on the disk and not in memory.
    pub on_disk_only: u64,
    /// Batches at the sink.
    pub in_flight: usize,
    /// Settled messages whose removal from the disk is not confirmed. After a crash these, and
    /// those at the sink, are delivered again.
    pub unconfirmed: u64,
    /// Messages whose removal from the disk is confirmed.
    pub removed: u64,
    /// Keys that wait for a decision.
    pub halted_keys: usize,
    /// Keys that wait for the dead letters to accept a message which the sink has refused.
    pub letters_waiting: usize,
    /// Pushes that wait for room.
    pub waiting_pushes: usize,

    /// Since when the sink fails, and why.
    pub failing: Option<Failing>,
    /// Since when the dead letters fail, and why. Keys without refused messages are delivered all
    /// the same.
    pub letters_failing: Option<Failing>,
    /// Since when the disk fails, and why. Messages in memory are delivered all the same.
    pub disk: Option<DiskFailing>,
}

/// Since when the sink fails, or the dead letters do, and why.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// When the first of these failures came.
    pub since: SystemTime,
    /// Failures since the last success.
    pub attempts: u32,
    /// The last error, escaped and cut to 200 characters.
    pub error: String,
}

/// Since when the disk fails, and why.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct DiskFailing {
    /// When the first of these failures came.
    pub since: SystemTime,
    /// The last error.
    pub error: DiskError,
}

/// A key that waits for [`Spool::resume`](super::Spool::resume) or
/// [`Spool::skip`](super::Spool::skip).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltedKey {
    /// The key.
    pub key: Bytes,
    /// The reason of the sink to refuse its first message.
    pub reason: String,
    /// How many of its messages wait in memory, the first included.
    pub waiting: usize,
}

impl Failing {
    fn new((fault, attempts): (Fault<Arc<str>>, u32)) -> Self {
        Self {
            since: fault.since,
            attempts,
            error: fault.error.to_string(),
        }
    }
}

impl Stats {
    pub(super) fn new(view: View) -> Self {
        let counts = view.counts;
        Self {
            accepted: counts.accepted,
            recovered: counts.recovered,
            delivered: counts.delivered,
            dead_lettered: counts.dead_lettered,
            dropped: counts.dropped,
            skipped: counts.skipped,
            out_of_order: counts.out_of_order,
            failures: counts.failures,
            waiting: view.unsettled,
            waiting_bytes: view.bytes,
            memory_bytes: view.memory,
            on_disk_only: view.on_disk_only,
            in_flight: view.in_flight,
            unconfirmed: view.unconfirmed,
            removed: counts.removed,
            halted_keys: view.halted_keys,
            waiting_pushes: view.waiting,
            letters_waiting: view.letters_waiting,
            failing: view.failing.map(Failing::new),
            letters_failing: view.letters_failing.map(Failing::new),
            disk: view
                .disk_fault
                .map(|Fault { since, error }| DiskFailing { since, error }),
        }
    }
}
