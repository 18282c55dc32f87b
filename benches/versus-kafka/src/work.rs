//! The handler that all contenders in Rust share, and what it sees of the order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::Error;
use crate::handler::Handler;
use crate::pause::Pauses;
use crate::record::Record;
use crate::report::Report;
use crate::task::Task;
use crate::usage;

/// How long nothing may be handled before a process that follows a killed one has done all.
const QUIET: Duration = Duration::from_secs(2);

/// The next record of this key may be any up to the one where the process before has ended.
const UNKNOWN: u32 = u32::MAX;

/// The work of one process.
#[derive(Clone, Debug)]
pub struct Work(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    handler: Handler,
    pauses: Pauses,
    first_counted: u32,
    expected: u64,
    started_ms: u64,
    keys: Vec<Key>,
    /// How many records of each key the process before has handled.
    before: Option<Vec<u32>>,
    progress: Option<File>,
    first: OnceLock<First>,
    ended: AtomicU64,
    breaks: AtomicU64,
    again: AtomicU64,
    end: OnceLock<End>,
    is_done: Notify,
    tenths: Mutex<Vec<Instant>>,
}

#[derive(Debug, Default)]
struct Key {
    next: AtomicU32,
    is_busy: AtomicBool,
}

#[derive(Debug)]
struct First {
    at: Instant,
    startup_seconds: f64,
    cpu_seconds: f64,
}

#[derive(Debug)]
struct End {
    at: Instant,
    cpu_seconds: f64,
}

/// The handler has failed, as it was asked to.
#[derive(Debug)]
pub struct Failed {
    /// The key.
    pub key: u32,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {} fails as asked", self.key)
    }
}

impl std::error::Error for Failed {}

impl Work {
    /// The work of a process with this task.
    pub fn new(task: &Task) -> Result<Self, Error> {
        let progress = task.progress.as_ref();
        let progress = progress.map(|path| {
            let mut options = File::options();
            options.read(true).write(true).open(path)
        });
        let progress = progress.transpose()?;
        let before = match &progress {
            Some(file) if task.follows => Some(read_progress(file, task.keys)?),
            _ => None,
        };
        let keys = (0..task.keys).map(|_| Key {
            next: AtomicU32::new(if task.follows { UNKNOWN } else { 0 }),
            is_busy: AtomicBool::new(false),
        });
        Ok(Self(Arc::new(Shared {
            handler: task.handler,
            pauses: Pauses::of(task.handler.longest()),
            first_counted: task.first_counted,
            expected: task.expected,
            started_ms: task.started_ms,
            keys: keys.collect(),
            before,
            progress,
            first: OnceLock::new(),
            ended: AtomicU64::new(0),
            breaks: AtomicU64::new(0),
            again: AtomicU64::new(0),
            end: OnceLock::new(),
            is_done: Notify::new(),
            tenths: Mutex::default(),
        })))
    }

    /// To be called in the runtime of the handlers, before there is anything to do.
    pub fn prepare(&self) {
        if self.0.handler != Handler::Empty {
            self.0.pauses.start();
        }
    }

    /// Handles a record.
    pub async fn handle(&self, record: Record) -> Result<(), Failed> {
        self.begin(record);
        if let Some(pause_for) = self.0.handler.pause(record) {
            self.0.pauses.pause(pause_for).await;
        }
        if self.0.handler.fails(record.key) {
            let key = &self.0.keys[record.key as usize];
            // The same record is the next one again.
            key.next.store(record.number, Ordering::Release);
            key.is_busy.store(false, Ordering::Release);
            return Err(Failed { key: record.key });
        }
        self.end(record);
        Ok(())
    }

    /// Notes that a handler begins.
    pub fn begin(&self, record: Record) {
        let shared = &*self.0;
        shared.first.get_or_init(|| First::now(shared.started_ms));
        let key = &shared.keys[record.key as usize];
        let overlaps = key.is_busy.swap(true, Ordering::AcqRel);
        let expected = key.next.swap(record.number + 1, Ordering::AcqRel);
        let before = shared.before.as_ref();
        let before = before.map_or(0, |before| before[record.key as usize]);
        let fits = match expected {
            UNKNOWN => record.number <= before,
            next => record.number == next,
        };
        if overlaps || !fits {
            shared.breaks.fetch_add(1, Ordering::Relaxed);
        }
        if record.number < before {
            shared.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that it has ended.
    pub fn end(&self, record: Record) {
        let shared = &*self.0;
        if let Some(progress) = &shared.progress {
            let at = u64::from(record.key) * 4;
            let written = progress.write_all_at(&(record.number + 1).to_le_bytes(), at);
            written.expect("the file of the progress can be written");
        }
        shared.keys[record.key as usize]
            .is_busy
            .store(false, Ordering::Release);
        if record.key < shared.first_counted {
            return;
        }
        let ended = shared.ended.fetch_add(1, Ordering::AcqRel) + 1;
        if ended.is_multiple_of((shared.expected / 10).max(1)) {
            let mut tenths = shared.tenths.lock().unwrap_or_else(PoisonError::into_inner);
            tenths.push(Instant::now());
        }
        if ended == shared.expected {
            shared.end.get_or_init(End::now);
            shared.is_done.notify_one();
        }
    }

    /// Whether the last record that counts is done.
    pub fn is_done(&self) -> bool {
        self.0.end.get().is_some()
    }

    /// Returns when the last record that counts is done, to one caller; in a process that follows a
    /// killed one, when nothing has come for some time.
    pub async fn done(&self) {
        let shared = &*self.0;
        if shared.before.is_none() {
            return shared.is_done.notified().await;
        }
        let mut ended = 0;
        loop {
            tokio::time::sleep(QUIET).await;
            let now = shared.ended.load(Ordering::Acquire);
            if now > 0 && now == ended {
                return;
            }
            ended = now;
        }
    }

    /// What this process says of itself.
    pub fn report(&self) -> Report {
        let shared = &*self.0;
        let first = shared.first.get_or_init(|| First::now(shared.started_ms));
        let end = shared.end.get_or_init(End::now);
        let since = |at: Instant| at.saturating_duration_since(first.at).as_secs_f64();
        let tenths = shared.tenths.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = shared.ended.load(Ordering::Acquire);
        Report {
            seconds: since(end.at),
            startup_seconds: first.startup_seconds,
            handled: ended.min(shared.expected),
            breaks: shared.breaks.load(Ordering::Acquire),
            again: shared.again.load(Ordering::Acquire),
            cpu_seconds: end.cpu_seconds,
            cpu_startup_seconds: first.cpu_seconds,
            peak_kib: usage::peak_kib(),
            tenths: tenths.iter().copied().map(since).collect(),
        }
    }
}

impl First {
    fn now(started_ms: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let startup = now.unwrap_or_default().as_secs_f64() - started_ms as f64 / 1e3;
        Self {
            at: Instant::now(),
            startup_seconds: startup.max(0.0),
            cpu_seconds: usage::cpu_seconds(),
        }
    }
}

impl End {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            cpu_seconds: usage::cpu_seconds(),
        }
    }
}

/// How many records of each key are handled, as the file says.
pub fn read_progress(file: &File, keys: u32) -> Result<Vec<u32>, Error> {
    let mut bytes = vec![0; keys as usize * 4];
    file.read_exact_at(&mut bytes, 0)?;
    let numbers = bytes.chunks_exact(4);
    let numbers = numbers.map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    Ok(numbers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(expected: u64, handler: Handler) -> Task {
        Task {
            bootstrap: String::new(),
            topic: String::new(),
            group: String::new(),
            partitions: 1,
            keys: 2,
            first_counted: 0,
            expected,
            concurrency: 1,
            handler,
            started_ms: 0,
            progress: None,
            follows: false,
        }
    }

    fn work(expected: u64, handler: Handler) -> Work {
        Work::new(&task(expected, handler)).expect("no file is needed")
    }

    #[tokio::test]
    async fn broken_order_is_seen() {
        let work = work(4, Handler::Empty);
        for (key, number, breaks) in [(0, 0, 0), (1, 1, 1), (0, 1, 1), (0, 1, 2)] {
            work.handle(Record { key, number })
                .await
                .expect("no failure");
            assert_eq!(work.report().breaks, breaks);
        }
        work.done().await;
        assert_eq!(work.report().handled, 4);
    }

    #[tokio::test]
    async fn overlaps_are_seen() {
        let work = work(2, Handler::Sleep(20_000));
        let handle = |number| work.handle(Record { key: 0, number });
        let _ = tokio::join!(handle(0), handle(1));
        assert_eq!(work.report().breaks, 1);
    }

    #[tokio::test]
    async fn a_retry_is_no_break() {
        let work = work(1, Handler::Failing(0));
        for _ in 0..3 {
            let failed = work.handle(Record { key: 0, number: 0 }).await;
            assert_eq!(failed.expect_err("as asked").key, 0);
        }
        let report = work.report();
        assert_eq!((report.breaks, report.handled), (0, 0));
    }
}
