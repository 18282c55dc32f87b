//! Counters of one dispatcher.

use std::fmt;

use keylane_rt::atomic::{AtomicU64, Ordering};

/// A snapshot of counters and gauges.
///
/// It is taken without stopping anything, so numbers of the same snapshot may be some messages
/// apart. `accepted` counts a message when the dispatcher task takes it from the channel.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages accepted since the start. It lags behind `send`; the capacity minus `capacity_left`
    /// does not.
    pub accepted: u64,
    /// Messages settled because their handler succeeded.
    pub done: u64,
    /// Messages settled because a sink accepted them as dead letters.
    pub dead_lettered: u64,
    /// Messages given up on without a dead letter: discarded, skipped, or pushed out of a full
    /// lane.
    pub discarded: u64,
    /// Messages that another message of their key stands for: declined, superseded, merged.
    pub coalesced: u64,
    /// Messages whose version came before, or is older than one that did.
    pub duplicates: u64,
    /// Messages that were too old to start.
    pub expired: u64,
    /// Messages handed back without an outcome.
    pub handed_back: u64,
    /// Attempts that failed, for whatever reason.
    pub failures: u64,
    /// Attempts, or drops of a user's value, that panicked.
    pub panics: u64,
    /// Attempts dropped at their time-out.
    pub timeouts: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Retries that had to wait longer for the retry budget.
    pub postponed: u64,
    /// Refusals of a letter by a dead-letter sink.
    pub letter_failures: u64,
    /// Messages that met a full lane after they were accepted.
    pub overflowed: u64,
    /// Handlers that were found to block their thread for longer than `stuck_after`.
    pub stuck: u64,
    /// Handlers in flight, up to the number of pollers off.
    pub in_flight: usize,
    /// Lanes whose head waits for a runner.
    pub ready: usize,
    /// Lanes that hold or run something.
    pub lanes: usize,
    /// Lanes, and keyless messages, that wait for a retry or for a dead-letter sink.
    pub backing_off: usize,
    /// Lanes that are halted, by a message or by a gap.
    pub halted: usize,
    /// Lanes that are paused.
    pub paused: usize,
    /// Lanes that wait for something else than a runner or a retry, and are not paused.
    pub waiting: WaitingLanes,
    /// Lanes at their capacity.
    pub full_lanes: usize,
    /// Messages of failing and flooded keys, counted apart from the capacity.
    pub stalled: usize,
    /// Room left in the capacity.
    pub capacity_left: usize,
    /// The current maximum of handlers in flight: the concurrency, or the current adaptive limit.
    pub concurrency_limit: usize,
}

/// Lanes that are not paused, by what they wait for.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingLanes {
    /// The [rate of their key](crate::Builder::rate_per_key).
    pub for_rate: usize,
    /// The time at which their first message [may start](crate::Dispatcher::send_when).
    pub for_time: usize,
    /// More messages for their [batch](crate::Builder::batch).
    pub for_batch: usize,
    /// The [lease of their key](crate::Builder::leased_by).
    pub for_lease: usize,
    /// An answer of the [`VersionStore`](crate::source::VersionStore).
    pub for_store: usize,
    /// Versions that are missing. Lanes that are halted by them are not counted here.
    pub for_versions: usize,
}

/// What has settled, and what is on its way: one line for a log.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            accepted,
            done,
            dead_lettered,
            discarded,
            handed_back,
            in_flight,
            ready,
            lanes,
            backing_off,
            halted,
            ..
        } = self;
        write!(
            f,
            "{accepted} accepted, {done} done, {dead_lettered} dead-lettered, {discarded} discarded, \
             {handed_back} handed back"
        )?;
        let counted = [
            (self.coalesced, "coalesced"),
            (self.duplicates, "duplicates"),
            (self.expired, "expired"),
        ];
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        write!(
            f,
            "; {in_flight} in flight, {ready} ready, {lanes} lanes, {backing_off} backing off, \
             {halted} halted"
        )?;
        if self.paused > 0 {
            write!(f, ", {} paused", self.paused)?;
        }
        Ok(())
    }
}

/// The atomics behind [`Stats`].
///
/// All are statistics but those of [`Counters::settled`], which decide when a shutdown is complete.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Counter,
    pub(crate) done: Counter,
    pub(crate) dead_lettered: Counter,
    pub(crate) discarded: Counter,
    pub(crate) coalesced: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) expired: Counter,
    pub(crate) handed_back: Counter,
    pub(crate) failures: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) retries: Counter,
    pub(crate) postponed: Counter,
    pub(crate) letter_failures: Counter,
    pub(crate) overflowed: Counter,
    pub(crate) stuck: Counter,
}

impl Counters {
    /// Messages that have their one outcome. Never more than there are, whatever runs meanwhile:
    /// each part only grows.
    pub(crate) fn settled(&self) -> u64 {
        let handled = self.done.get() + self.dead_lettered.get() + self.discarded.get();
        let unhandled = self.coalesced.get() + self.duplicates.get() + self.expired.get();
        handled + unhandled + self.handed_back.get()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more. Releases what the caller did before; partner: the acquire load in `get`,
    /// by which the router sees that all has settled. The acquire half passes on what others
    /// released with their own counts.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::AcqRel);
    }

    /// The count. Partner: `add`.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
