//! Every setting of a spool, with its default.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keylane_disk::name_of;

use super::backoff::Backoff;
use super::core::{Batch, Core, Settings};
use super::driver::{Driver, drive};
use super::error::OpenError;
use super::flight::Target;
use super::handle::Spool;
use super::journal::{DiskError, Drawn, RedbJournal};
use super::metrics;
use super::policy::{AtLimit, Persist};
use super::refused::OnRefused;
use super::shared::Shared;
use super::sink::SpoolSink;
use super::writer::write;

/// The least memory of a spool.
const LEAST_MEMORY: usize = 4 * 1024;

/// Longer times are cut to this one, which every clock can add.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Builds a [`Spool`]. The sink is required; everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`name`](Self::name) | that of the directory, or `memory` | two with one name are one in metrics |
/// | [`dir`](Self::dir) | none: in memory only | |
/// | [`persist`](Self::persist) | `Each` with a directory | |
/// | [`batch`](Self::batch) | 500 messages, 1 MiB, 5 ms | the batch goes |
/// | [`in_flight`](Self::in_flight) | 1 batch | the next one waits |
/// | [`memory`](Self::memory) | 64 MiB | to the disk, or `at_limit` |
/// | [`disk`](Self::disk) | 1 GiB | `at_limit` |
/// | [`at_limit`](Self::at_limit) | `Wait` | |
/// | [`max_message`](Self::max_message) | 16 MiB | `TooLarge` |
/// | [`timeout`](Self::timeout) | 30 seconds | the batch has failed |
/// | [`backoff`](Self::backoff) | from 50 ms to 30 seconds | |
/// | [`on_refused`](Self::on_refused) | `Halt` | |
///
/// A message counts with its key, payload and headers and 143 bytes. Times longer than a year count
/// as a year.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_spool::{AtLimit, Persist, SinkError, Spool, Spooled};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let spool = Spool::builder(|batch: Vec<Spooled>| async move {
///     println!("one request for {} messages", batch.len());
///     Ok::<(), SinkError>(())
/// })
/// .dir(dir.path())
/// .batch(100, 64 * 1024, Duration::from_millis(2))
/// .persist(Persist::EveryMessages(1_000))
/// .memory(16 * 1024 * 1024)
/// .disk(256 * 1024 * 1024)
/// .at_limit(AtLimit::Reject)
/// .open()
/// .await?;
/// # spool.close().await;
/// # Ok(())
/// # }
/// ```
pub struct SpoolBuilder<S> {
    sink: S,
    name: Option<String>,
    dir: Option<PathBuf>,
    persist: Option<Persist>,
    batch: Batch,
    in_flight: usize,
    memory: usize,
    disk: Option<u64>,
    at_limit: AtLimit,
    max_message: usize,
    timeout: Duration,
    backoff: (Duration, Duration),
    on_refused: OnRefused,
}

impl Spool {
    /// Starts to build a spool that delivers to this sink.
    pub fn builder<S: SpoolSink>(sink: S) -> SpoolBuilder<S> {
        SpoolBuilder {
            sink,
            name: None,
            dir: None,
            persist: None,
            batch: Batch {
                count: 500,
                bytes: 1024 * 1024,
                linger: Duration::from_millis(5),
            },
            in_flight: 1,
            memory: 64 * 1024 * 1024,
            disk: None,
            at_limit: AtLimit::Wait,
            max_message: 16 * 1024 * 1024,
            timeout: Duration::from_secs(30),
            backoff: (Duration::from_millis(50), Duration::from_secs(30)),
            on_refused: OnRefused::Halt,
        }
    }
}

impl<S: SpoolSink> SpoolBuilder<S> {
    /// Sets the name in logs and metrics: that of the directory by default, which is the last part
    /// of its path, or `memory` without one. Give two spools of a process different names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the directory for messages. The spool creates it if it does not exist; only one spool
    /// at a time may have it open.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Sets when a message is on the disk. Needs a [`dir`](Self::dir), unless it is
    /// [`Persist::None`].
    pub fn persist(mut self, persist: Persist) -> Self {
        self.persist = Some(persist);
        self
    }

    /// Sets the most messages and bytes of a batch, and how long it waits to fill. A message that
    /// is larger than `bytes` is a batch of its own. With a `linger` of zero waiting messages go at
    /// once, and batches form while the sink is busy.
    pub fn batch(mut self, count: usize, bytes: usize, linger: Duration) -> Self {
        self.batch = Batch {
            count,
            bytes,
            linger,
        };
        self
    }

    /// Sets the most batches at the sink at once. They share no key. While the sink fails, only one
    /// batch is sent at a time.
    ///
    /// A batch is chosen from the oldest messages, four times its count and at least 1,024. If all
    /// of their keys are in flight, it waits: if one key has that many messages, the other keys are
    /// written between its batches and not beside them. Letters to dead letters do not count.
    pub fn in_flight(mut self, batches: usize) -> Self {
        self.in_flight = batches;
        self
    }

    /// Sets the most bytes in memory, at least 4 KiB. With a directory, half of it is for messages
    /// that wait for the sink, and a quarter for those that are being stored. The store has a cache
    /// of 8 MiB beside it.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the most bytes of all undelivered messages, in memory and on the disk. Needs a
    /// [`dir`](Self::dir). The file can be larger: up to 3 times as large, and 4 MiB.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(bytes);
        self
    }

    /// Sets what happens to a push when the spool is full.
    pub fn at_limit(mut self, at_limit: AtLimit) -> Self {
        self.at_limit = at_limit;
        self
    }

    /// Sets the most bytes of one message. A larger value is cut to [`disk`](Self::disk) and, with
    /// a directory, a quarter of [`memory`](Self::memory), without one all of it.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// Sets how long the sink, or the dead letters, may take to answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the wait after a failed batch: `base`, then twice as long each time, up to `cap`. Each
    /// wait is spread between half of it and all of it. A success resets it. Failures of the dead
    /// letters have the same wait, counted separately.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = (base, cap);
        self
    }

    /// Sets what happens to a message that the sink refuses as invalid, and to its key.
    pub fn on_refused(mut self, on_refused: OnRefused) -> Self {
        self.on_refused = on_refused;
        self
    }

    /// Opens the directory, if there is one, and starts to deliver its messages.
    ///
    /// The spool runs on the Tokio runtime in which this is called, and on one thread of its own
    /// for the disk.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the wrong setting, or the file and what to do about it. If another spool
    /// has the directory open, the error is [`DiskErrorKind::Locked`](super::DiskErrorKind).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing is delivered. The directory may stay
    /// locked until the file has been read.
    pub async fn open(self) -> Result<Spool, OpenError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        // The only way to find out.
        std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)))
            .map_err(|_| OpenError::NoTimers)?;
        let settings = self.settings()?;
        let drawn = Drawn::at_random();
        let opened = match self.dir.clone() {
            None => None,
            Some(dir) => {
                let opening = runtime.spawn_blocking(move || RedbJournal::open(&dir, drawn));
                // It does not panic: it ends early only with the runtime.
                Some(opening.await.map_err(|_| OpenError::NoRuntime)??)
            }
        };
        let (journal, found) = opened.unzip();
        let backoff = Backoff::new(self.backoff.0.min(LONGEST), self.backoff.1.min(LONGEST));
        let core = Core::new(settings, backoff, drawn.spool(), found);
        let name = self.name.unwrap_or_else(|| match &self.dir {
            Some(dir) => name_of(dir),
            None => "memory".to_owned(),
        });
        let shared = Arc::new(Shared::new(core, name));
        // It stops the spool if it is dropped, and so does the handle.
        let driver = Driver::new(Arc::clone(&shared));
        if let Some(journal) = journal {
            start_writer(&shared, journal)?;
        }
        let target = Target {
            sink: Arc::new(self.sink),
            letters: match self.on_refused {
                OnRefused::DeadLetter(letters) => Some(letters),
                OnRefused::Halt => None,
            },
            timeout: self.timeout,
        };
        runtime.spawn(drive(driver, target));
        metrics::publish(&shared);
        Ok(Spool::new(shared))
    }

    fn settings(&self) -> Result<Settings, OpenError> {
        let persist = match (self.persist, &self.dir) {
            (Some(Persist::None), _) | (None, None) => Persist::None,
            (None, Some(_)) => Persist::Each,
            (Some(persist), Some(_)) => persist,
            (Some(_), None) => return Err(OpenError::Needs("persist", "dir")),
        };
        if self.disk.is_some() && self.dir.is_none() {
            return Err(OpenError::Needs("disk", "dir"));
        }
        let zeros = [
            ("batch: count", self.batch.count == 0),
            ("batch: bytes", self.batch.bytes == 0),
            ("in_flight", self.in_flight == 0),
            ("disk", self.disk == Some(0)),
            ("max_message", self.max_message == 0),
            ("timeout", self.timeout.is_zero()),
            ("backoff: base", self.backoff.0.is_zero()),
            ("persist", persist == Persist::EveryMessages(0)),
            ("persist", persist == Persist::Every(Duration::ZERO)),
        ];
        if let Some((name, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(OpenError::Zero(name));
        }
        if self.memory < LEAST_MEMORY {
            return Err(OpenError::Memory {
                bytes: self.memory,
                least: LEAST_MEMORY,
            });
        }
        let disk = self.dir.is_some().then(|| self.disk.unwrap_or(1 << 30));
        let largest = match disk {
            Some(disk) => (self.memory / 4).min(usize::try_from(disk).unwrap_or(usize::MAX)),
            None => self.memory,
        };
        Ok(Settings {
            batch: Batch {
                linger: self.batch.linger.min(LONGEST),
                ..self.batch
            },
            in_flight: self.in_flight,
            persist,
            at_limit: self.at_limit,
            memory: self.memory,
            disk,
            max_message: self.max_message.min(largest),
            halts: matches!(self.on_refused, OnRefused::Halt),
        })
    }
}

fn start_writer(shared: &Arc<Shared>, journal: RedbJournal) -> Result<(), DiskError> {
    let path = journal.path().to_owned();
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("keylane-spool".to_owned());
    let started = thread.spawn(move || write(&shared, journal));
    started.map_err(|error| DiskError::from_io(&path, &error))?;
    Ok(())
}

impl<S> fmt::Debug for SpoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolBuilder")
            .field("name", &self.name)
            .field("dir", &self.dir)
            .field("persist", &self.persist)
            .field("batch", &self.batch)
            .field("in_flight", &self.in_flight)
            .field("memory", &self.memory)
            .field("disk", &self.disk)
            .field("at_limit", &self.at_limit)
            .field("max_message", &self.max_message)
            .field("timeout", &self.timeout)
            .field("backoff", &self.backoff)
            .field("on_refused", &self.on_refused)
            .finish_non_exhaustive()
    }
}
