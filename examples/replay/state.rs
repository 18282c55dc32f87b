//! The tree that the replay builds, and the proof that it was built in order.
//!
//! An event is applied only where it fits: the path must hold what the event says was there before.
//! An event that overtakes another, is lost, or runs beside another of its path finds something
//! else. Two swaps cannot be seen that way (a file that goes A, B, A, B looks the same when its
//! first and third event change places), so each path also remembers the last number it saw.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::event::{Entry, Event, RepoPath};

/// Path → what stands there, shared by all handlers.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Paths with an event waiting or running. A statistic: it orders nothing.
    busy_paths: Peak,
    breaks: AtomicU64,
    first_breaks: Mutex<Vec<Break>>,
}

impl Table {
    /// The event was handed to a design.
    pub(crate) fn sent(&self, event: &Event) {
        let path = &event.change.path;
        let mut shard = self.shard(path);
        let cell = match shard.cells.get_mut(path) {
            Some(cell) => cell,
            None => shard.cells.entry(path.clone()).or_default(),
        };
        cell.events += 1;
        cell.open += 1;
        let open = cell.open;
        if shard
            .deepest
            .as_ref()
            .is_none_or(|(deepest, _)| open > *deepest)
        {
            shard.deepest = Some((open, path.clone()));
        }
        // Counted under the shard's lock, so that a path's end is never counted before its start.
        if open == 1 {
            self.busy_paths.enter();
        }
    }

    /// A handler begins with the event. Whether it may is remembered until [`Table::end`].
    pub(crate) fn begin(&self, event: &Event) -> Turn {
        let mut shard = self.shard(&event.change.path);
        let cell = shard.cells.entry(event.change.path.clone()).or_default();
        let fault = cell.fault(event);
        cell.running += 1;
        cell.last = cell.last.max(event.number);
        Turn { fault }
    }

    /// The handler is done: the event is applied where it fits.
    pub(crate) fn end(&self, event: Event, turn: Turn) {
        let mut shard = self.shard(&event.change.path);
        let cell = shard.cells.entry(event.change.path.clone()).or_default();
        cell.running -= 1;
        // A design that handles an event twice is caught by its number, not by an overflow here.
        if cell.open == 1 {
            self.busy_paths.leave();
        }
        cell.open = cell.open.saturating_sub(1);
        let fault = turn.fault.or_else(|| {
            (cell.now != event.change.before).then_some(Fault::Before { found: cell.now })
        });
        match fault {
            None => cell.now = event.change.after,
            Some(fault) => {
                drop(shard);
                self.note(Break {
                    number: event.number,
                    path: event.change.path,
                    fault,
                });
            }
        }
    }

    /// What was seen; waits for nothing, so call it when the design has finished.
    pub(crate) fn summary(&self, hottest: usize) -> Summary {
        let mut paths = Vec::new();
        let mut deepest = None;
        for shard in &self.shards {
            let shard = lock(shard);
            paths.extend(
                shard
                    .cells
                    .iter()
                    .map(|(path, cell)| (cell.events, path.clone())),
            );
            deepest = deepest.max(shard.deepest.clone());
        }
        let events = paths.iter().map(|(events, _)| events).sum();
        let keys = paths.len();
        // Most events first, then by name.
        paths.sort_unstable_by(|(a, a_path), (b, b_path)| b.cmp(a).then(a_path.cmp(b_path)));
        paths.truncate(hottest);
        Summary {
            events,
            keys,
            hottest: paths,
            deepest_lane: deepest,
            busy_paths: self.busy_paths.most(),
            breaks: self.breaks.load(Ordering::Relaxed),
            first_breaks: lock(&self.first_breaks).clone(),
        }
    }

    /// Compares, entry by entry, with what git says.
    pub(crate) fn compare(&self, mut expected: HashMap<RepoPath, Entry>) -> Comparison {
        let mut comparison = Comparison {
            entries: expected.len(),
            ..Comparison::default()
        };
        for shard in &self.shards {
            for (path, cell) in &lock(shard).cells {
                let expected = expected.remove(path);
                if cell.now != expected {
                    comparison.note(path, cell.now, expected);
                }
            }
        }
        for (path, entry) in expected {
            comparison.note(&path, None, Some(entry));
        }
        comparison
    }

    fn note(&self, fault: Break) {
        self.breaks.fetch_add(1, Ordering::Relaxed);
        let mut first = lock(&self.first_breaks);
        if first.len() < SHOWN {
            first.push(fault);
        }
    }

    fn shard(&self, path: &RepoPath) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(path) as usize % self.shards.len();
        lock(&self.shards[shard])
    }
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: (0..64).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            busy_paths: Peak::default(),
            breaks: AtomicU64::new(0),
            first_breaks: Mutex::default(),
        }
    }
}

/// Whether a handler began when it may.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn {
    fault: Option<Fault>,
}

/// An event that did not fit.
#[derive(Debug, Clone)]
pub(crate) struct Break {
    number: u64,
    path: RepoPath,
    fault: Fault,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} of {}: ", self.number, self.path)?;
        match self.fault {
            Fault::Overlap => write!(f, "another event of this path was still running"),
            Fault::Overtaken { by } => write!(f, "event {by} came first"),
            Fault::Before { found } => write!(f, "found {}", Standing(found)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Overlap,
    Overtaken { by: u64 },
    Before { found: Option<Entry> },
}

/// What happened in a replay, as far as the table saw it.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) events: u64,
    pub(crate) keys: usize,
    pub(crate) hottest: Vec<(u64, RepoPath)>,
    /// Most events of one path that were sent and not yet handled, and the path.
    pub(crate) deepest_lane: Option<(u64, RepoPath)>,
    /// Most paths that had such events at the same time.
    pub(crate) busy_paths: u64,
    pub(crate) breaks: u64,
    pub(crate) first_breaks: Vec<Break>,
}

/// The replayed tree against git's.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) entries: usize,
    pub(crate) differences: u64,
    pub(crate) first_differences: Vec<String>,
}

impl Comparison {
    pub(crate) fn is_equal(&self) -> bool {
        self.differences == 0
    }

    fn note(&mut self, path: &RepoPath, found: Option<Entry>, expected: Option<Entry>) {
        self.differences += 1;
        if self.first_differences.len() < SHOWN {
            let (found, expected) = (Standing(found), Standing(expected));
            self.first_differences
                .push(format!("{path}: {found}, git says {expected}"));
        }
    }
}

/// A number that goes up and down, and the most it ever was.
#[derive(Debug, Default)]
pub(crate) struct Peak {
    now: AtomicU64,
    most: AtomicU64,
}

impl Peak {
    pub(crate) fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        // Looked at first: once it is high, few entries still have to write.
        if now > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// How many breaks and differences are shown; all are counted.
const SHOWN: usize = 3;

#[derive(Debug, Default)]
struct Shard {
    cells: HashMap<RepoPath, Cell>,
    deepest: Option<(u64, RepoPath)>,
}

/// All that is known about one path. It outlives a deletion, for the count and the last number.
#[derive(Debug, Default)]
struct Cell {
    now: Option<Entry>,
    last: u64,
    events: u64,
    /// Sent, not yet handled.
    open: u64,
    running: u64,
}

impl Cell {
    /// Why the event may not begin.
    fn fault(&self, event: &Event) -> Option<Fault> {
        if self.running > 0 {
            Some(Fault::Overlap)
        } else if event.number <= self.last {
            Some(Fault::Overtaken { by: self.last })
        } else {
            None
        }
    }
}

/// What stands at a path, in words.
struct Standing(Option<Entry>);

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(entry) => entry.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("nothing panics while it holds the lock")
}
