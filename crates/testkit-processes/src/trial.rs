//! Producers in the test and workers in processes, while their server fails over.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylane_testkit::scenario::until;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ledger::{Ledger, all_go_on};
use crate::record::{Entry, Event};
use crate::{Answer, Journal, Process, Reader, Verdict, now};

/// How long each producer waits between two messages …
const PACE: Duration = Duration::from_millis(20);

/// … how many of its messages may wait to be done …
const AHEAD: usize = 5;

/// … and how long it waits if there are more: they may be lost.
const WAIT: Duration = Duration::from_secs(1);

/// The variables of a worker. Without them the test that is the worker does nothing.
const JOURNAL: &str = "KEYLANE_TRIAL_JOURNAL";
const TASK: &str = "KEYLANE_TRIAL_TASK";

/// In the test that is a worker: returns its journal and its task. `None` if no [`Trial`] has
/// started it.
///
/// # Panics
///
/// Panics if the journal cannot be opened.
pub fn task() -> Option<(Journal, String)> {
    let path = std::env::var_os(JOURNAL)?;
    let task = std::env::var(TASK).unwrap_or_default();
    Some((Journal::open(path), task))
}

/// Starts a worker, with these variables beside its own.
pub(crate) fn start(
    test: &str,
    journal: &Path,
    task: &str,
    mut variables: Vec<(&'static str, OsString)>,
) -> Process {
    variables.extend([(JOURNAL, journal.into()), (TASK, task.into())]);
    Process::start(test, variables)
}

/// The processes of a trial.
#[derive(Clone, Debug)]
pub struct Workers {
    /// How many there are.
    pub count: usize,
    /// The test that each of them runs, such as `clusters::worker`.
    pub test: &'static str,
    /// What [`task`] returns there.
    pub task: String,
}

impl Workers {
    fn start(&self, journal: &Path) -> Process {
        start(self.test, journal, &self.task, Vec::new())
    }
}

/// Messages that are sent, handled by workers, and judged. The test does the faults.
///
/// ```text
///  producers, one for each key ──► server ──► workers, which are processes
///     └─► Ledger                                └─► Journal ◄── kills, faults
///           └────────────────► Verdict ◄────────────────┘
/// ```
///
/// A producer sends the next message when the one before it was answered, and sends none again. It
/// is not far ahead of the workers, so that a message shows by itself how long it takes.
#[derive(Debug)]
pub struct Trial {
    ledger: Ledger,
    producers: Vec<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    processes: Vec<Process>,
    workers: Workers,
    journal: Journal,
    progress: Progress,
    /// When the last fault was, and whether it has ended a history.
    fault: (Duration, bool),
    path: PathBuf,
    _folder: TempDir,
}

impl Trial {
    /// Starts workers, and sends messages of so many keys: `send` gets the key and the id.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime, and if a worker cannot be started.
    pub fn start<F: Future<Output = Answer> + Send + 'static>(
        keys: u64,
        send: impl Fn(u64, u64) -> F + Clone + Send + 'static,
        workers: Workers,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (ledger, ends) = (Ledger::default(), Arc::<AtomicBool>::default());
        let journal = Journal::open(&path);
        let processes = (0..workers.count).map(|_| workers.start(&path)).collect();
        let progress = Progress::of(Reader::open(&path));
        let produce = |key| Producer {
            key,
            ledger: ledger.clone(),
            progress: progress.clone(),
            ends: Arc::clone(&ends),
        };
        let produce = |key| tokio::spawn(produce(key).run(send.clone()));
        Self {
            producers: (0..keys).map(produce).collect(),
            ledger,
            ends,
            processes,
            workers,
            progress,
            journal,
            fault: (now(), false),
            path,
            _folder: folder,
        }
    }

    /// Records that a fault of the server happens now.
    pub fn fault(&mut self) {
        self.fault = (now(), false);
        self.journal.event(Event::Fault, 0);
    }

    /// Records that a fault happens now which may lose what the server has confirmed.
    pub fn lossy_fault(&mut self) {
        self.fault = (now(), true);
        self.journal.event(Event::Lossy, 0);
    }

    /// Kills a worker, and starts another one.
    ///
    /// # Panics
    ///
    /// Panics if it has ended by itself.
    pub fn kill_worker(&mut self, worker: usize) {
        let process = &mut self.processes[worker % self.workers.count];
        process.kill();
        self.journal.event(Event::Killed, u64::from(process.id()));
        *process = self.workers.start(&self.path);
    }

    /// Pauses a worker. When this returns, it does not run.
    ///
    /// # Panics
    ///
    /// Panics if it has ended by itself.
    pub async fn pause_worker(&self, worker: usize) {
        self.processes[worker % self.workers.count].pause().await;
    }

    /// Lets a paused worker go on.
    ///
    /// # Panics
    ///
    /// Panics if it is gone.
    pub fn resume_worker(&self, worker: usize) {
        self.processes[worker % self.workers.count].resume();
    }

    /// Waits until a message of every key is done that was sent after the last fault.
    ///
    /// # Panics
    ///
    /// Panics if one is not within two minutes.
    pub async fn goes_on(&mut self) {
        let (fault, is_lossy) = self.fault;
        until(|| all_go_on(&self.ledger.sent(), &self.progress.lock(), fault).is_some()).await;
        if is_lossy {
            self.journal.event(Event::History, 0);
        }
    }

    /// Waits until one more message of every key is done, stops everything, and judges it.
    ///
    /// The last message of each key is accepted by a server that is well, and messages of a key are
    /// done in their order. So what is not done then is lost.
    ///
    /// # Panics
    ///
    /// Panics if a message is not done within two minutes, or a worker fails.
    pub async fn end(mut self) -> Verdict {
        self.ends.store(true, Ordering::Relaxed);
        for producer in std::mem::take(&mut self.producers) {
            producer.await.expect("no panic");
        }
        let sent = self.ledger.sent();
        let mut last = BTreeMap::new();
        last.extend((0..).zip(&sent).map(|(id, sent)| (sent.key, id)));
        until(|| last.values().all(|id| self.progress.is_done(*id))).await;
        for process in std::mem::take(&mut self.processes) {
            process.stop().await;
        }
        Verdict::judge(&sent, Reader::open(&self.path).read())
    }
}

/// When each message was done, from the journal. A task reads it until the last clone is dropped.
#[derive(Clone, Debug)]
struct Progress(Arc<Mutex<HashMap<u64, Duration>>>);

impl Progress {
    fn of(mut reader: Reader<3>) -> Self {
        let progress = Self(Arc::default());
        let done_at = Arc::downgrade(&progress.0);
        tokio::spawn(async move {
            while let Some(done_at) = done_at.upgrade() {
                note(reader.read(), &mut done_at.lock().expect("no panic"));
                sleep(PACE / 4).await;
            }
        });
        progress
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Duration>> {
        self.0.lock().expect("no panic")
    }

    fn is_done(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }
}

fn note(lines: &[Entry], done_at: &mut HashMap<u64, Duration>) {
    for line in lines {
        if Event::of(line) == Event::Done {
            done_at.entry(line.numbers[1]).or_insert(line.at);
        }
    }
}

struct Producer {
    key: u64,
    ledger: Ledger,
    progress: Progress,
    ends: Arc<AtomicBool>,
}

impl Producer {
    /// Sends until it ends, and then one more that is accepted.
    async fn run<F: Future<Output = Answer>>(self, send: impl Fn(u64, u64) -> F) {
        let mut waiting = Vec::new();
        loop {
            let is_over = self.ends.load(Ordering::Relaxed);
            let id = self.ledger.send(self.key);
            let answer = send(self.key, id).await;
            self.ledger.answer(id, answer);
            if is_over && answer == Answer::Accepted {
                return;
            }
            waiting.push(id);
            let until = now() + WAIT;
            loop {
                sleep(PACE).await;
                waiting.retain(|id| !self.progress.is_done(*id));
                if waiting.len() <= AHEAD || now() > until {
                    break;
                }
            }
            // More than that is given up.
            waiting.drain(..waiting.len().saturating_sub(AHEAD));
        }
    }
}
