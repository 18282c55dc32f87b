//! What is sent, and what becomes of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

use super::entry::Entry;
use super::planner::{self, plan};
use super::{Core, Fault, Stage};
use crate::spool::message::Spooled;
use crate::spool::policy::Persist;
use crate::spool::refused::Refused;
use crate::spool::sink::Fate;

/// A batch that was handed out.
#[derive(Debug)]
pub(super) struct InFlight {
    id: u64,
    pub(super) entries: Vec<Entry>,
    /// Its keys, where other batches may start meanwhile.
    keys: HashSet<Bytes>,
}

/// A batch to send.
#[derive(Debug)]
pub(in crate::spool) struct Flight {
    pub(in crate::spool) id: u64,
    pub(in crate::spool) batch: Vec<Spooled>,
    /// It is one refused message, which goes to the dead letters instead.
    pub(in crate::spool) letter: Option<Refused>,
}

/// What became of a batch.
#[derive(Debug)]
pub(in crate::spool) enum Landing {
    Written,
    /// One fate for each message.
    Failed {
        fates: Vec<Fate>,
        one_by_one: bool,
        error: Arc<str>,
    },
}

/// What the driver does next.
#[derive(Debug, Default)]
pub(in crate::spool) struct Step {
    pub(in crate::spool) flights: Vec<Flight>,
    pub(in crate::spool) wake_at: Option<Instant>,
    pub(in crate::spool) is_over: bool,
}

/// What a decision depends on beside the messages.
#[derive(Clone, Copy, Debug)]
pub(in crate::spool) struct Moment {
    pub(in crate::spool) now: Instant,
    pub(in crate::spool) wall: SystemTime,
    /// From 0 to 1.
    pub(in crate::spool) dice: f64,
}

/// How the health of the sink changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) enum Change {
    None,
    Failing,
    StillFailing,
    Recovered,
}

impl Core {
    /// Whether the driver has reason to look at the line.
    pub(super) fn is_worth_a_look(&self) -> bool {
        let is_full = self.line.len() >= self.settings.batch.count
            || self.line.bytes() >= self.settings.batch.bytes;
        self.can_send() && (is_full || self.linger_until.is_none())
    }

    /// While the sink fails, one batch at a time tries it.
    fn most_flights(&self) -> usize {
        match self.backoff.failures() {
            0 => self.settings.in_flight,
            _ => 1,
        }
    }

    /// Decides what to send now, and when to look again.
    pub(in crate::spool) fn step(&mut self, now: Instant) -> Step {
        if let Some(within) = self.deadline_in.take()
            && let Some(deadline) = now.checked_add(within)
        {
            self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        }
        self.retry_at = self.retry_at.filter(|at| *at > now);
        self.time_sync(now);
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        let mut flights = Vec::new();
        while !is_late
            && self.can_send()
            && let Some(flight) = self.next_flight(now)
        {
            flights.extend(flight);
        }
        if self.stage == Stage::Draining && (is_late || self.is_stuck()) {
            self.stop();
        }
        // While nothing can be sent, it does not matter how long a batch has waited.
        let linger_until = self.linger_until.filter(|_| self.can_send());
        let times = [self.retry_at, linger_until, self.sync_at, self.deadline];
        Step {
            flights,
            wake_at: times.into_iter().flatten().min(),
            is_over: self.stage >= Stage::Stopping,
        }
    }

    fn can_send(&self) -> bool {
        self.stage < Stage::Stopping
            && self.flights.len() < self.most_flights()
            && self.retry_at.is_none()
    }

    fn time_sync(&mut self, now: Instant) {
        let Persist::Every(period) = self.settings.persist else {
            return;
        };
        if self.sync_at.is_some_and(|at| at <= now) {
            self.sync_at = None;
            self.is_sync_due = true;
            self.wakes.journal = true;
        }
        if self.loose > 0 && self.sync_at.is_none() {
            self.sync_at = now.checked_add(period);
        }
    }

    /// The next batch, if one can go. `Some(None)` if a key was halted instead.
    fn next_flight(&mut self, now: Instant) -> Option<Option<Flight>> {
        let Some(front) = self.line.front().map(Entry::sequence) else {
            self.linger_until = None;
            return None;
        };
        let is_single = front <= self.one_by_one_upto;
        let limits = planner::Limits {
            count: if is_single {
                1
            } else {
                self.settings.batch.count
            },
            bytes: self.settings.batch.bytes,
            look_ahead: self.settings.look_ahead(),
        };
        let is_busy = |key: &Bytes| {
            let mut flights = self.flights.iter();
            flights.any(|flight| flight.keys.contains(key))
        };
        let plan = plan(self.line.iter(), is_busy, limits);
        if plan.places.is_empty() {
            // Its keys are in flight.
            self.linger_until = None;
            return None;
        }
        let is_urgent = self.stage > Stage::Open || front <= self.flush_upto;
        if !plan.is_full && !is_urgent {
            let until = now + self.settings.batch.linger;
            if *self.linger_until.get_or_insert(until) > now {
                return None;
            }
        }
        self.linger_until = None;
        let entries = self.line.take(&plan.places);
        if plan.is_letter && self.settings.halts {
            self.halt(entries);
            return Some(None);
        }
        Some(Some(self.start(entries)))
    }

    fn start(&mut self, entries: Vec<Entry>) -> Flight {
        let id = self.next_flight;
        self.next_flight += 1;
        let mut keys = HashSet::new();
        if self.settings.in_flight > 1 {
            keys.extend(entries.iter().map(|entry| entry.key().clone()));
        }
        let letter = entries.first().and_then(|entry| {
            let reason = entry.refused.as_ref()?;
            Some(Refused {
                message: entry.message.clone(),
                reason: reason.to_string(),
            })
        });
        let batch = entries.iter().map(|entry| entry.message.clone()).collect();
        self.flights.push(InFlight { id, entries, keys });
        Flight { id, batch, letter }
    }

    fn halt(&mut self, mut entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let reason = first.refused.clone().unwrap_or_default();
        let key = first.key().clone();
        entries.extend(self.line.take_key(&key));
        self.halted.halt(reason, entries);
        // A flush may wait for nothing else.
        self.wakes.settled = true;
    }

    /// Takes in what became of a batch.
    pub(in crate::spool) fn land(&mut self, id: u64, landing: Landing, at: Moment) -> Change {
        let Some(place) = self.flights.iter().position(|flight| flight.id == id) else {
            // The spool has stopped meanwhile, and counts the batch as not written.
            return Change::None;
        };
        let flight = self.flights.swap_remove(place);
        let (fates, one_by_one, error) = match landing {
            Landing::Written => {
                for entry in &flight.entries {
                    self.delivered(entry);
                }
                return self.works();
            }
            Landing::Failed {
                fates,
                one_by_one,
                error,
            } => (fates, one_by_one, error),
        };
        let mut passed: HashSet<Bytes> = HashSet::new();
        let has_refused = fates.contains(&Fate::Refused);
        let has_written = fates.contains(&Fate::Written);
        let mut fates = fates.into_iter();
        for mut entry in flight.entries {
            match fates.next().unwrap_or(Fate::Again) {
                Fate::Written => {
                    if passed.contains(entry.key()) {
                        self.counts.out_of_order += 1;
                    }
                    self.delivered(&entry);
                    continue;
                }
                Fate::Again => {
                    if one_by_one {
                        self.one_by_one_upto = self.one_by_one_upto.max(entry.sequence());
                    }
                }
                Fate::Refused => entry.refused = Some(Arc::clone(&error)),
            }
            passed.insert(entry.key().clone());
            self.line.put(entry);
        }
        if has_refused || one_by_one {
            // The sink works; it is the message that does not. Each such answer makes the work
            // less, so it is not a reason to wait.
            return self.works();
        }
        self.fails(error, has_written, at)
    }

    fn delivered(&mut self, entry: &Entry) {
        match entry.refused {
            Some(_) => self.counts.dead_lettered += 1,
            None => self.counts.delivered += 1,
        }
        self.settle(entry);
    }

    fn works(&mut self) -> Change {
        self.backoff.succeeded();
        self.retry_at = None;
        match self.failing.take() {
            Some(_) => Change::Recovered,
            None => Change::None,
        }
    }

    fn fails(&mut self, error: Arc<str>, has_written: bool, at: Moment) -> Change {
        if has_written {
            self.backoff.succeeded();
        }
        self.counts.failures += 1;
        self.retry_at = at.now.checked_add(self.backoff.failed(at.dice));
        match &mut self.failing {
            Some(failing) => {
                failing.error = error;
                Change::StillFailing
            }
            None => {
                self.failing = Some(Fault {
                    since: at.wall,
                    error,
                });
                Change::Failing
            }
        }
    }
}

impl Core {
    /// Lets a halted key go on with the message that was refused. False if it is not halted.
    pub(in crate::spool) fn resume(&mut self, key: &[u8]) -> bool {
        let entries = self.halted.release(key);
        let was_halted = !entries.is_empty();
        for mut entry in entries {
            entry.refused = None;
            self.line.put(entry);
        }
        self.wakes.driver |= was_halted;
        was_halted
    }

    /// Lets a halted key go on without the message that was refused.
    pub(in crate::spool) fn skip(&mut self, key: &[u8]) -> Option<Spooled> {
        let mut entries = self.halted.release(key);
        let first = entries.pop_front()?;
        for entry in entries {
            self.line.put(entry);
        }
        self.counts.skipped += 1;
        self.settle(&first);
        self.wakes.driver = true;
        Some(first.message)
    }

    /// Each halted key, why, and how many of its messages wait in memory.
    pub(in crate::spool) fn halted_keys(&self) -> impl Iterator<Item = (&Bytes, &Arc<str>, usize)> {
        self.halted.list()
    }
}
