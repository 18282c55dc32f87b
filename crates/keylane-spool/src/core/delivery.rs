//! Decides what to send, and takes the results.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::entry::Entry;
use super::health::Change;
use super::in_flight::InFlight;
use super::moment::Moment;
use super::planner::{self, plan};
use super::{Core, Stage};
use crate::id::MessageId;
use crate::message::Spooled;
use crate::policy::Persist;
use crate::refused::Refused;
use crate::sink::Fate;

/// What to send.
#[derive(Debug)]
pub(crate) enum Flight {
    /// To the sink.
    Batch { id: u64, batch: Vec<Spooled> },
    /// To the dead letters.
    Letter { id: u64, letter: Refused },
}

/// The result of a batch or a letter.
#[derive(Debug)]
pub(crate) enum Landing {
    Written,
    /// One outcome for each message.
    Failed {
        fates: Vec<Fate>,
        one_by_one: bool,
        error: Arc<str>,
    },
}

/// The health of the sink or of the dead letters, and its change.
#[derive(Clone, Debug)]
pub(crate) struct Landed {
    pub(crate) place: &'static str,
    pub(crate) change: Change,
    /// The messages that the sink has just refused, with their keys.
    pub(crate) refused: Vec<(MessageId, Bytes)>,
    /// Whether their keys halt. Otherwise they become dead letters.
    pub(crate) halts: bool,
}

/// The next step of the driver.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) flights: Vec<Flight>,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) is_over: bool,
}

impl Core {
    /// Returns whether the driver has reason to look at the line.
    pub(super) fn is_worth_a_look(&self) -> bool {
        let is_full = self.line.len() >= self.settings.batch.count
            || self.line.bytes() >= self.settings.batch.bytes;
        self.can_send() && (is_full || self.linger_until.is_none())
    }

    /// Returns the most batches at once: one while the sink fails.
    fn most_batches(&self) -> usize {
        match self.sink_health.failures() {
            0 => self.settings.in_flight,
            _ => 1,
        }
    }

    /// Returns the number of batches at the sink.
    pub(super) fn batches(&self) -> usize {
        let batches = self.flights.iter().filter(|flight| !flight.is_letter);
        batches.count()
    }

    /// Decides what to send now, and when to look again.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        if let Some(within) = self.deadline_in.take()
            && let Some(deadline) = now.checked_add(within)
        {
            self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        }
        self.sink_health.look(now);
        self.letters_health.look(now);
        self.time_sync(now);
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        let mut flights = Vec::new();
        if !is_late {
            while self.can_send()
                && let Some(flight) = self.next_flight(now)
            {
                flights.extend(flight);
            }
            flights.extend(self.next_letter());
        }
        if self.stage == Stage::Draining && (is_late || self.is_stuck()) {
            self.stop();
        }
        // While nothing can be sent, it does not matter how long a batch has waited.
        let linger_until = self.linger_until.filter(|_| self.can_send());
        let times = [
            self.sink_health.retry_at(),
            self.letters_health.retry_at(),
            linger_until,
            self.sync_at,
            self.deadline,
        ];
        Step {
            flights,
            wake_at: times.into_iter().flatten().min(),
            is_over: self.stage >= Stage::Stopping,
        }
    }

    fn can_send(&self) -> bool {
        self.stage < Stage::Stopping
            && self.batches() < self.most_batches()
            && self.sink_health.retry_at().is_none()
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

    /// Returns the next batch, if one can go. `Some(None)` if refused messages were set aside
    /// instead.
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
        if plan.is_refused {
            self.set_aside(entries);
            return Some(None);
        }
        let batch = entries.iter().map(|entry| entry.message.clone()).collect();
        let mut keys = HashSet::new();
        if self.settings.in_flight > 1 {
            keys.extend(entries.iter().map(|entry| entry.key().clone()));
        }
        let id = self.take_off(entries, keys, false);
        Some(Some(Flight::Batch { id, batch }))
    }

    pub(super) fn take_off(
        &mut self,
        entries: Vec<Entry>,
        keys: HashSet<Bytes>,
        is_letter: bool,
    ) -> u64 {
        let id = self.next_flight;
        self.next_flight += 1;
        self.flights.push(InFlight {
            id,
            entries,
            keys,
            is_letter,
        });
        id
    }

    /// Takes the result of a batch or a letter.
    pub(crate) fn land(&mut self, id: u64, landing: Landing, at: Moment) -> Landed {
        let Some(place) = self.flights.iter().position(|flight| flight.id == id) else {
            // The spool has stopped meanwhile, and counts it as not written.
            return Landed {
                place: "",
                change: Change::None,
                refused: Vec::new(),
                halts: false,
            };
        };
        let mut flight = self.flights.swap_remove(place);
        let (halts, mut refused) = (self.settings.halts, Vec::new());
        let (place, change) = match flight.entries.pop_if(|_| flight.is_letter) {
            Some(entry) => ("dead letters", self.land_letter(entry, landing, at)),
            None => {
                let change = self.land_batch(flight.entries, landing, at, &mut refused);
                ("sink", change)
            }
        };
        Landed {
            place,
            change,
            refused,
            halts,
        }
    }

    fn land_batch(
        &mut self,
        entries: Vec<Entry>,
        landing: Landing,
        at: Moment,
        refused: &mut Vec<(MessageId, Bytes)>,
    ) -> Change {
        let (fates, one_by_one, error) = match landing {
            Landing::Written => {
                for entry in &entries {
                    self.delivered(entry);
                }
                return self.sink_health.works();
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
        for mut entry in entries {
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
                Fate::Refused => {
                    entry.refused = Some(Arc::clone(&error));
                    refused.push((entry.message.id, entry.key().clone()));
                }
            }
            passed.insert(entry.key().clone());
            self.line.put(entry);
        }
        if has_refused || one_by_one {
            // The sink works; the message is invalid. Each such answer makes less work, so there is
            // no reason to wait.
            return self.sink_health.works();
        }
        self.counts.failures += 1;
        self.sink_health.fails(error, has_written, at)
    }

    fn delivered(&mut self, entry: &Entry) {
        self.counts.delivered += 1;
        self.settle(entry);
    }

    /// Returns each halted key, the reason, and how many of its messages wait in memory.
    pub(crate) fn halted_keys(&self) -> impl Iterator<Item = (&Bytes, &Arc<str>, usize)> {
        self.halted.list().filter(|_| self.settings.halts)
    }
}
