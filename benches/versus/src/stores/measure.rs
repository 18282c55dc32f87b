//! One measurement of one store, in a process of its own.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::latency::histogram;
use crate::stores::floor::Floor;
use crate::stores::inbox::{Batch, Inbox, Layout};
use crate::stores::message::{Claimed, Traffic};
use crate::stores::process::{self, Size};
use crate::stores::store::{Kind, Result, Settings, Store};

/// What is measured.
#[derive(Debug)]
pub struct Case {
    /// The store.
    pub kind: Kind,
    /// Its settings.
    pub settings: Settings,
    /// Where it is.
    pub directory: PathBuf,
    /// Its tables.
    pub inbox: Inbox,
    /// What is stored.
    pub traffic: Traffic,
    /// Messages of one commit.
    pub group: u64,
    /// The most messages read of one lane at once.
    pub window: usize,
    /// For how many messages an id is kept.
    pub retention: u64,
    /// Every how many messages one is left where it is, in `drain`; 0 for none.
    pub leave: u64,
    /// When to stop.
    pub limit: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What was measured.
    pub what: String,
    /// The store.
    pub store: String,
    /// Messages of one commit.
    pub group: u64,
    /// Keys.
    pub keys: u64,
    /// Bytes of a record.
    pub bytes: usize,
    /// Messages gone through.
    pub messages: u64,
    /// In seconds.
    pub seconds: f64,
    /// Of a commit, in nanoseconds.
    pub p50: u64,
    /// Of a commit, in nanoseconds.
    pub p99: u64,
    /// Of a commit, in nanoseconds.
    pub max: u64,
    /// Reading the messages, in seconds.
    pub claiming: f64,
    /// Opening, in seconds.
    pub opening: f64,
    /// Closing, in seconds.
    pub closing: f64,
    /// Compacting, in seconds.
    pub compacting: f64,
    /// The most memory.
    pub memory: u64,
    /// Written to the disk.
    pub written: u64,
    /// The directory right behind it.
    pub size: Size,
    /// The most the directory had.
    pub largest: u64,
    /// The directory after it was closed.
    pub closed: Size,
    /// The directory after it was compacted and closed.
    pub compacted: Size,
    /// Bytes of keys and values that are stored now.
    pub live: u64,
    /// Messages that are left.
    pub left: u64,
    /// Whether it was stopped early.
    pub cut: bool,
    /// What the store says.
    pub says: String,
}

impl Outcome {
    /// Messages in a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }
}

impl Case {
    /// Accepts messages.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn load(&self, from: u64, messages: u64) -> Result<Outcome> {
        let mut outcome = self.outcome("append");
        if self.kind == Kind::Floor {
            return self.load_floor(from, messages, outcome);
        }
        let store = self.open(&mut outcome)?;
        let mut run = Run::new();
        let mut next = from;
        while next < from + messages && !run.over(self.limit) {
            let batch = self.accept(&mut next, from + messages);
            run.timed(|| self.inbox.commit(store.as_ref(), &batch))?;
        }
        outcome.messages = next - from;
        outcome.cut = next < from + messages;
        outcome.live = self.live(outcome.messages);
        run.into(&mut outcome);
        self.end(store, outcome, false)
    }

    /// Opens, reads the first messages, and closes.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn reopen(&self, count: bool) -> Result<Outcome> {
        let mut outcome = self.outcome("open");
        let store = self.open(&mut outcome)?;
        let started = Instant::now();
        self.inbox.claim(store.as_ref(), &mut 0, self.window, 256)?;
        outcome.claiming = started.elapsed().as_secs_f64();
        outcome.memory = process::high_water();
        if count {
            let started = Instant::now();
            outcome.messages = self.inbox.count(store.as_ref())?;
            outcome.seconds = started.elapsed().as_secs_f64();
        }
        self.end(store, outcome, false)
    }

    /// Reads everything in order and has it done.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn drain(&self) -> Result<Outcome> {
        let mut outcome = self.outcome("drain");
        let store = self.open(&mut outcome)?;
        let mut run = Run::new();
        let mut lanes = Lanes::default();
        let mut batch = Batch::default();
        while !run.over(self.limit) {
            let started = Instant::now();
            let mut claimed = lanes.next(self, store.as_ref(), self.leave > 0)?;
            outcome.claiming += started.elapsed().as_secs_f64();
            if claimed.is_empty() && batch.done.is_empty() {
                break;
            }
            let pending: HashSet<u64> = batch.done.iter().map(|message| message.lane).collect();
            claimed.retain(|message| !pending.contains(&message.lane));
            outcome.messages += claimed.len() as u64;
            // The attempt is on the disk before the handler begins, with what is done meanwhile.
            batch.begun = begun(&claimed);
            run.timed(|| self.inbox.commit(store.as_ref(), &batch))?;
            if self.leave > 0 {
                claimed.retain(|message| !message.sequence.is_multiple_of(self.leave));
            }
            batch.done = claimed;
        }
        outcome.cut = run.over(self.limit);
        run.into(&mut outcome);
        outcome.left = self.inbox.count(store.as_ref())?;
        outcome.live = self.live(outcome.left);
        self.end(store, outcome, true)
    }

    /// Reads and marks what is begun, and leaves it.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn claim(&self, messages: u64) -> Result<Outcome> {
        let mut outcome = self.outcome("claim");
        let store = self.open(&mut outcome)?;
        let mut run = Run::new();
        let mut lanes = Lanes::default();
        while outcome.messages < messages && !run.over(self.limit) {
            let started = Instant::now();
            let claimed = lanes.claim(self, store.as_ref())?;
            outcome.claiming += started.elapsed().as_secs_f64();
            outcome.messages += claimed.len() as u64;
            let batch = Batch {
                begun: begun(&claimed),
                ..Batch::default()
            };
            run.timed(|| self.inbox.commit(store.as_ref(), &batch))?;
        }
        outcome.cut = outcome.messages < messages;
        run.into(&mut outcome);
        self.end(store, outcome, false)
    }

    /// Accepts as many as are done and begun, all in one commit, while `depth` of them wait.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn steady(&self, depth: u64, messages: u64) -> Result<Outcome> {
        let mut outcome = self.outcome("steady");
        let store = self.open(&mut outcome)?;
        let mut next = 1;
        while next <= depth {
            let mut batch = Batch::default();
            for _ in 0..1024.min(depth + 1 - next) {
                batch.accepted.push(self.traffic.message(next));
                next += 1;
            }
            self.inbox.commit(store.as_ref(), &batch)?;
        }
        let mut run = Run::new();
        let mut lanes = Lanes::default();
        let last = next + messages;
        let mut sampled = Instant::now();
        let mut pending = lanes.claim(self, store.as_ref())?;
        while next < last && !run.over(self.limit) {
            let mut batch = self.accept(&mut next, last);
            let started = Instant::now();
            let claimed = lanes.claim(self, store.as_ref())?;
            outcome.claiming += started.elapsed().as_secs_f64();
            let done = std::mem::replace(&mut pending, claimed);
            // The round may have come to a lane whose messages are still to be marked done.
            let lanes: HashSet<u64> = done.iter().map(|message| message.lane).collect();
            pending.retain(|message| !lanes.contains(&message.lane));
            batch.begun = begun(&pending);
            batch.done = done;
            batch.forget = next.checked_sub(self.retention);
            run.timed(|| self.inbox.commit(store.as_ref(), &batch))?;
            if sampled.elapsed() > Duration::from_millis(250) {
                sampled = Instant::now();
                outcome.largest = outcome.largest.max(process::size(&self.directory).blocks);
            }
        }
        outcome.messages = messages - (last - next);
        outcome.cut = next < last;
        run.into(&mut outcome);
        outcome.left = self.inbox.count(store.as_ref())?;
        outcome.live = self.live(outcome.left);
        self.end(store, outcome, true)
    }

    fn load_floor(&self, from: u64, messages: u64, mut outcome: Outcome) -> Result<Outcome> {
        let mut floor = Floor::open(&self.directory)?;
        let mut run = Run::new();
        let mut next = from;
        while next < from + messages && !run.over(self.limit) {
            let batch = self.accept(&mut next, from + messages);
            run.timed(|| floor.append(&batch.accepted))?;
        }
        outcome.messages = next - from;
        run.into(&mut outcome);
        outcome.memory = process::high_water();
        outcome.written = process::written();
        outcome.size = process::size(&self.directory);
        outcome.closed = outcome.size;
        Ok(outcome)
    }

    fn outcome(&self, what: &str) -> Outcome {
        Outcome {
            what: what.to_owned(),
            store: self.kind.name().to_owned(),
            group: self.group,
            keys: self.traffic.keys,
            bytes: self.traffic.bytes,
            ..Outcome::default()
        }
    }

    fn open(&self, outcome: &mut Outcome) -> Result<Box<dyn Store>> {
        let started = Instant::now();
        let store = self.kind.open(&self.directory, &self.settings)?;
        self.inbox.recover(store.as_ref())?;
        outcome.opening = started.elapsed().as_secs_f64();
        // A parent that kills this process waits for the line.
        eprintln!("open");
        std::io::stderr().flush()?;
        Ok(store)
    }

    fn end(&self, store: Box<dyn Store>, mut outcome: Outcome, compact: bool) -> Result<Outcome> {
        outcome.memory = outcome.memory.max(process::high_water());
        outcome.says = store.describe();
        outcome.size = process::size(&self.directory);
        outcome.largest = outcome.largest.max(outcome.size.blocks);
        let started = Instant::now();
        store.close()?;
        outcome.closing = started.elapsed().as_secs_f64();
        outcome.closed = process::size(&self.directory);
        outcome.written = process::written();
        if compact {
            let mut store = self.kind.open(&self.directory, &self.settings)?;
            let started = Instant::now();
            store.compact()?;
            outcome.compacting = started.elapsed().as_secs_f64();
            store.close()?;
            outcome.compacted = process::size(&self.directory);
        }
        Ok(outcome)
    }

    fn accept(&self, next: &mut u64, end: u64) -> Batch {
        let mut batch = Batch::default();
        for sequence in *next..end.min(*next + self.group) {
            batch.accepted.push(self.traffic.message(sequence));
        }
        *next += batch.accepted.len() as u64;
        batch
    }

    /// Keys and values of the messages and their lanes.
    fn live(&self, messages: u64) -> u64 {
        let lanes = if self.traffic.unique {
            messages
        } else {
            self.traffic.keys.min(messages)
        };
        let row = match self.inbox.layout() {
            Layout::Counted => 20 + 24 + 16,
            Layout::Lean => 20 + 8,
            Layout::Log | Layout::Tail => 0,
        };
        let ids = if self.inbox.dedupes() {
            48 * messages.min(self.retention)
        } else {
            0
        };
        messages * (16 + self.traffic.bytes as u64) + lanes * row + ids
    }
}

/// Goes round the lanes.
#[derive(Default)]
struct Lanes {
    cursor: u64,
    lowest: u64,
}

impl Lanes {
    fn claim(&mut self, case: &Case, store: &dyn Store) -> Result<Vec<Claimed>> {
        self.next(case, store, false)
    }

    /// The next messages; where only one round is made, none after it.
    fn next(&mut self, case: &Case, store: &dyn Store, once: bool) -> Result<Vec<Claimed>> {
        let limit = usize::try_from(case.group)?;
        let mut claimed = case
            .inbox
            .claim(store, &mut self.cursor, case.window, limit)?;
        if claimed.len() < limit && !once {
            // From the lane that was the first one in the last round: those before it are gone for good.
            self.cursor = self.lowest;
            let again =
                case.inbox
                    .claim(store, &mut self.cursor, case.window, limit - claimed.len())?;
            if let (Layout::Lean, Some(first)) = (case.inbox.layout(), again.first()) {
                self.lowest = first.lane;
            }
            let lanes: HashSet<u64> = claimed.iter().map(|message| message.lane).collect();
            claimed.extend(
                again
                    .into_iter()
                    .filter(|message| !lanes.contains(&message.lane)),
            );
        }
        claimed.sort_unstable_by_key(|message| (message.lane, message.sequence));
        Ok(claimed)
    }
}

fn begun(claimed: &[Claimed]) -> Vec<(u64, u64)> {
    claimed
        .chunk_by(|one, next| one.lane == next.lane)
        .map(|lane| (lane[0].lane, lane[0].sequence))
        .collect()
}

/// Commits and how long they took.
struct Run {
    started: Instant,
    histogram: Histogram<u64>,
}

impl Run {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            histogram: histogram(),
        }
    }

    fn over(&self, limit: Duration) -> bool {
        self.started.elapsed() > limit
    }

    fn timed(&mut self, commit: impl FnOnce() -> Result) -> Result {
        let started = Instant::now();
        commit()?;
        self.histogram
            .saturating_record(started.elapsed().as_nanos() as u64);
        Ok(())
    }

    fn into(self, outcome: &mut Outcome) {
        outcome.seconds = self.started.elapsed().as_secs_f64();
        outcome.p50 = self.histogram.value_at_quantile(0.5);
        outcome.p99 = self.histogram.value_at_quantile(0.99);
        outcome.max = self.histogram.max();
    }
}
