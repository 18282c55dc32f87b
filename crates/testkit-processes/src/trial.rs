//! Producers in the test and workers in processes, while their server fails over.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane_testkit::scenario::until;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::record::{Entry, Event};
use crate::verdict::{Verdict, all_go_on};
use crate::{Answer, Journal, Ledger, Process, Reader, now};

/// How long each producer waits between two messages.
const PACE: Duration = Duration::from_millis(20);

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
        let variables = [(JOURNAL, journal.as_os_str()), (TASK, self.task.as_ref())];
        Process::start(self.test, variables)
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
/// A producer sends the next message when the one before it was answered, and sends none again.
#[derive(Debug)]
pub struct Trial {
    ledger: Ledger,
    producers: Vec<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    processes: Vec<Process>,
    workers: Workers,
    journal: Journal,
    reader: Reader<3>,
    done_at: HashMap<u64, Duration>,
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
        let produce = |key| produce(key, send.clone(), ledger.clone(), Arc::clone(&ends));
        Self {
            producers: (0..keys).map(|key| tokio::spawn(produce(key))).collect(),
            ledger,
            ends,
            processes,
            workers,
            reader: Reader::open(&path),
            journal,
            done_at: HashMap::new(),
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

    /// Waits until a message of every key is done that was sent after the last fault.
    ///
    /// # Panics
    ///
    /// Panics if one is not within two minutes.
    pub async fn goes_on(&mut self) {
        let (fault, is_lossy) = self.fault;
        until(|| {
            self.read();
            all_go_on(&self.ledger.sent(), &self.done_at, fault).is_some()
        })
        .await;
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
        until(|| {
            self.read();
            last.values().all(|id| self.done_at.contains_key(id))
        })
        .await;
        for process in std::mem::take(&mut self.processes) {
            process.stop().await;
        }
        Verdict::judge(&sent, Reader::open(&self.path).read())
    }

    fn read(&mut self) {
        let done = |line: &&Entry| Event::of(line) == Event::Done;
        for line in self.reader.read().iter().filter(done) {
            self.done_at.entry(line.numbers[1]).or_insert(line.at);
        }
    }
}

/// Sends until it ends, and then one more that is accepted.
async fn produce<F: Future<Output = Answer>>(
    key: u64,
    send: impl Fn(u64, u64) -> F,
    ledger: Ledger,
    ends: Arc<AtomicBool>,
) {
    loop {
        let is_over = ends.load(Ordering::Relaxed);
        let id = ledger.send(key);
        let answer = send(key, id).await;
        ledger.answer(id, answer);
        if is_over && answer == Answer::Accepted {
            return;
        }
        sleep(PACE).await;
    }
}
