//! The decisions: pure, with the time as an argument.

// A message is in exactly one place:
//
//            ┌──────────── stored later, or never ───────────┐
//            │                                               ▼
//   push ────┴► arriving ──► stored ──┬─ memory is free ──► line ──► in flight ──► settled
//               (with a journal)      │                     ▲ │ ▲        │
//                                     └─► tail ── a page ───┘ │ └────────┘ not written
//                                       (on disk only)        ▼
//                                                           halted ◄─► at the dead letters
//
// # Invariants
//
// 1. Each of the places is sorted by sequence. Messages in `arriving` are younger than those in the
//    tail, and these are younger than those in the line. So while there is a tail, or a message
//    arrives, a new message goes behind it.
// 2. A halted key has no message in the line. Its first one was refused: it waits for the user, or
//    for the dead letters, and no other key waits for it.
// 3. Unless the policy is `Persist::None`: messages that are not stored are younger than stored
//    ones. So a crash loses a suffix.
// 4. An entry that the journal has, or has the order to store, is marked. If it settles, the
//    journal gets the order to remove it, in the same commit or a later one.
// 5. `resident` is the size of the messages in the line, in flight or halted; `total` is that of
//    all.
//
// # The end
//
// `Draining`: no message is accepted. `Stopping`: no message is delivered any more, messages in
// flight are back in the line, and the journal stores those that it lacks. `Ended`: the journal is
// closed, and the report has the messages that it lacks.

mod arriving;
pub(super) use arriving::{Answer, Waiter};

mod counts;
pub(super) use counts::Counts;

mod delivery;
pub(super) use delivery::{Flight, Landed, Landing};

mod ending;
mod entry;

mod fault;
pub(super) use fault::Fault;

mod flush;
pub(super) use flush::Flush;

mod halted;

mod health;
pub(super) use health::Change;

mod in_flight;

mod intake;
pub(super) use intake::Offer;

mod letters;
mod line;

mod moment;
pub(super) use moment::Moment;

mod planner;

mod settings;
pub(super) use settings::{Batch, Settings};

mod storage;
pub(super) use storage::{Wants, Work};

mod tail;

#[cfg(test)]
pub(super) mod support;

#[cfg(test)]
mod simulation;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use self::arriving::Arriving;
use self::entry::{Entry, Stored};
use self::halted::Halted;
use self::health::Health;
use self::in_flight::InFlight;
use self::line::Line;
use self::tail::Tail;
use super::backoff::Backoff;
use super::id::Epoch;
use super::journal::{DiskError, Found};
use super::message::Spooled;

/// The progress of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Open,
    Draining,
    Stopping,
    Ended,
}

/// The tasks that must look again, after a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wakes {
    /// The driver: there is something to send, or to wait for.
    pub(super) driver: bool,
    /// The first push that waits.
    pub(super) room: bool,
    /// The callers that wait for a flush or the end.
    pub(super) settled: bool,
    /// The writer of the journal.
    pub(super) journal: bool,
}

/// The remaining messages at the end.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) on_disk: u64,
    pub(super) in_memory: u64,
    pub(super) returned: Vec<Spooled>,
    oldest: Option<u64>,
    /// The reason why the next opening does not find the stored messages.
    pub(super) displaced: Option<DiskError>,
}

#[derive(Debug)]
pub(super) struct Core {
    settings: Settings,
    stage: Stage,
    counts: Counts,

    spool: u64,
    epoch: Epoch,
    next_sequence: u64,

    // Where messages are.
    arriving: VecDeque<Arriving>,
    arriving_bytes: usize,
    tail: Tail,
    line: Line,
    flights: Vec<InFlight>,
    halted: Halted,
    /// Halted keys whose first message goes to the dead letters, in their turn.
    letters: VecDeque<Bytes>,
    resident: usize,
    total: u64,
    /// Pushes that wait for room. A new one goes behind them.
    waiting: usize,

    // Delivery.
    next_flight: u64,
    sink_health: Health,
    letters_health: Health,
    linger_until: Option<Instant>,
    flush_upto: u64,
    /// Up to here each batch has one message, to find the refused one.
    one_by_one_upto: u64,

    // The journal.
    has_journal: bool,
    durable_upto: u64,
    /// Not settled, and not durable.
    loose: usize,
    is_sync_due: bool,
    sync_at: Option<Instant>,
    removals: Vec<u64>,
    /// Settled, and not yet known to be removed.
    unconfirmed: u64,
    is_reading: bool,
    disk_fault: Option<Fault<DiskError>>,
    page_fault: Option<Fault<DiskError>>,
    /// The disk has failed when the spool stopped.
    is_given_up: bool,

    // The end.
    deadline: Option<Instant>,
    deadline_in: Option<Duration>,
    left: Left,

    wakes: Wakes,
    answers: Vec<Answer>,
}

impl Core {
    /// Creates the core. `found` is the content of the journal, if there is one.
    pub(super) fn new(
        settings: Settings,
        backoff: Backoff,
        spool: u64,
        found: Option<Found>,
    ) -> Self {
        let found_range = found.and_then(|found| found.range);
        let counts = Counts {
            recovered: found.map_or(0, |found| found.messages),
            ..Counts::default()
        };
        Self {
            settings,
            stage: Stage::Open,
            counts,
            spool: found.map_or(spool, |found| found.spool),
            epoch: found.map_or(Epoch::default(), |found| found.epoch),
            next_sequence: found_range.map_or(1, |(_, last)| last + 1),
            arriving: VecDeque::new(),
            arriving_bytes: 0,
            tail: found.map_or_else(Tail::default, Tail::found),
            line: Line::default(),
            flights: Vec::new(),
            halted: Halted::default(),
            letters: VecDeque::new(),
            resident: 0,
            total: found.map_or(0, |found| found.bytes),
            waiting: 0,
            next_flight: 0,
            sink_health: Health::new(backoff),
            letters_health: Health::new(backoff),
            linger_until: None,
            flush_upto: 0,
            one_by_one_upto: 0,
            has_journal: found.is_some(),
            durable_upto: found_range.map_or(0, |(_, last)| last),
            loose: 0,
            is_sync_due: false,
            sync_at: None,
            removals: Vec::new(),
            unconfirmed: 0,
            is_reading: false,
            disk_fault: None,
            page_fault: None,
            is_given_up: false,
            deadline: None,
            deadline_in: None,
            left: Left::default(),
            wakes: Wakes::default(),
            answers: Vec::new(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the tasks to wake and the answers to send since the last call.
    pub(super) fn take_effects(&mut self) -> (Wakes, Vec<Answer>) {
        (
            std::mem::take(&mut self.wakes),
            std::mem::take(&mut self.answers),
        )
    }

    /// Admits a message to memory, where it may be delivered.
    fn admit(&mut self, entry: Entry) {
        self.resident += entry.size;
        if let Some(entry) = self.halted.add(entry) {
            self.line.put(entry);
        }
    }

    /// Admits arrived messages in their order, while memory is free. They need not be stored first
    /// if no push waits for that.
    fn admit_arrived(&mut self) {
        while self.tail.is_empty()
            && let Some(first) = self.arriving.front()
            && first.waiter.is_none()
            && self.has_memory_for(first.entry.size)
            && let Some(arriving) = self.arriving.pop_front()
        {
            self.arriving_bytes -= arriving.entry.size;
            self.admit(arriving.entry);
            self.wakes.driver |= self.is_worth_a_look();
        }
    }

    /// Returns whether memory is free for a message of this size.
    fn has_memory_for(&self, size: usize) -> bool {
        self.resident == 0 || self.resident + size <= self.settings.window()
    }

    /// Settles a message. This is the only place where a message in memory leaves the spool.
    fn settle(&mut self, entry: &Entry) {
        self.resident -= entry.size;
        self.total -= entry.size as u64;
        if self.has_journal && entry.sequence() > self.durable_upto {
            self.loose -= 1;
        }
        if entry.stored != Stored::No {
            self.removals.push(entry.sequence());
            self.unconfirmed += 1;
        }
        self.wakes.journal |= self.has_journal;
        self.wakes.room = true;
        self.wakes.settled = true;
        self.admit_arrived();
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(entry) = self.line.pop().or_else(|| self.halted.pop_oldest()) else {
            return false;
        };
        self.counts.dropped += 1;
        self.settle(&entry);
        true
    }

    fn flying(&self) -> impl Iterator<Item = &Entry> {
        self.flights.iter().flat_map(|flight| &flight.entries)
    }

    fn unsettled(&self) -> u64 {
        let in_memory =
            self.line.len() + self.flying().count() + self.halted.messages() + self.arriving.len();
        in_memory as u64 + self.tail.messages()
    }
}

/// The view of a spool from outside.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) counts: Counts,
    pub(super) unsettled: u64,
    pub(super) bytes: u64,
    pub(super) memory: usize,
    pub(super) on_disk_only: u64,
    pub(super) in_flight: usize,
    pub(super) unconfirmed: u64,
    pub(super) halted_keys: usize,
    pub(super) waiting: usize,
    pub(super) letters_waiting: usize,
    pub(super) failing: Option<(Fault<Arc<str>>, u32)>,
    pub(super) letters_failing: Option<(Fault<Arc<str>>, u32)>,
    pub(super) disk_fault: Option<Fault<DiskError>>,
}

impl Core {
    pub(super) fn view(&self) -> View {
        let stopped = self.halted.keys();
        let (halted_keys, letters_waiting) = match self.settings.halts {
            true => (stopped, 0),
            false => (0, stopped),
        };
        View {
            counts: self.counts,
            unsettled: self.unsettled(),
            bytes: self.total,
            memory: self.resident + self.arriving_bytes,
            on_disk_only: self.tail.messages(),
            in_flight: self.batches(),
            unconfirmed: self.unconfirmed,
            halted_keys,
            letters_waiting,
            waiting: self.waiting,
            failing: self.sink_health.failing(),
            letters_failing: self.letters_health.failing(),
            disk_fault: self.page_fault.clone().or_else(|| self.disk_fault.clone()),
        }
    }
}
