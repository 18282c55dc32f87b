//! Sinks that do what a test says.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_spool::{MessageId, SinkError, SpoolReport, SpoolSink, Spooled, async_trait};

/// What a sink does with a batch.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Write,
    Fail,
    /// Writes the first ones, and says so.
    WriteFirst(usize),
    /// Writes all, and does not say so.
    Lose,
    Panic,
    Hang,
    /// Names them.
    Refuse(Vec<usize>),
}

/// A sink that follows a script, and then a default.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

struct State {
    script: VecDeque<Act>,
    default: Act,
    /// A payload that starts so is refused without saying which it was.
    poison: Option<&'static str>,
    written: Vec<Spooled>,
    batches: Vec<usize>,
    active: HashMap<Vec<u8>, usize>,
    latency: Duration,
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = Act>) -> Self {
        Self(Arc::new(Mutex::new(State {
            script: script.into_iter().collect(),
            default: Act::Write,
            poison: None,
            written: Vec::new(),
            batches: Vec::new(),
            active: HashMap::new(),
            latency: Duration::ZERO,
        })))
    }

    pub(crate) fn down() -> Self {
        let sink = Self::new([]);
        sink.then(Act::Fail);
        sink
    }

    /// From now on.
    pub(crate) fn then(&self, act: Act) {
        self.0.lock().unwrap().default = act;
    }

    pub(crate) fn poison(&self, payload: &'static str) {
        self.0.lock().unwrap().poison = Some(payload);
    }

    pub(crate) fn latency(&self, latency: Duration) {
        self.0.lock().unwrap().latency = latency;
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().batches.len()
    }

    pub(crate) fn batches(&self) -> Vec<usize> {
        self.0.lock().unwrap().batches.clone()
    }

    /// `key=payload`, each write of it.
    pub(crate) fn written(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.written.iter().map(text).collect()
    }

    pub(crate) fn ids(&self) -> Vec<MessageId> {
        let state = self.0.lock().unwrap();
        state.written.iter().map(|message| message.id).collect()
    }

    /// Each key's payloads without repetitions, as numbers, must ascend from 0 by one.
    pub(crate) fn check_order(&self, messages: usize) {
        let state = self.0.lock().unwrap();
        let mut seen = HashSet::new();
        let mut next: HashMap<&[u8], u64> = HashMap::new();
        for message in &state.written {
            if !seen.insert(message.id) {
                continue;
            }
            let number: u64 = std::str::from_utf8(&message.payload)
                .unwrap()
                .parse()
                .unwrap();
            let next = next.entry(&message.key).or_default();
            assert_eq!(number, *next, "key {:?}", message.key);
            *next += 1;
        }
        assert_eq!(seen.len(), messages);
    }
}

pub(crate) fn text(message: &Spooled) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}={}", text(&message.key), text(&message.payload))
}

#[async_trait]
impl SpoolSink for Scripted {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        let (act, latency) = {
            let mut state = self.0.lock().unwrap();
            state.batches.push(batch.len());
            for message in batch {
                *state.active.entry(message.key.to_vec()).or_default() += 1;
            }
            let is_poisoned = state
                .poison
                .is_some_and(|poison| batch.iter().any(|message| message.payload == poison));
            if is_poisoned {
                return Err(SinkError::refused_batch("poison"));
            }
            let next = state.script.pop_front();
            (next.unwrap_or_else(|| state.default.clone()), state.latency)
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let down = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let write = |count: usize| {
            let mut state = self.0.lock().unwrap();
            state
                .written
                .extend_from_slice(&batch[..count.min(batch.len())]);
        };
        match act {
            Act::Write => {
                write(usize::MAX);
                Ok(())
            }
            Act::Fail => Err(down().into()),
            Act::WriteFirst(count) => {
                write(count);
                Err(SinkError::failed(down()).with_first_written(count))
            }
            Act::Lose => {
                write(usize::MAX);
                Err(down().into())
            }
            // As a panic does, without the noise.
            Act::Panic => std::panic::resume_unwind(Box::new("planned")),
            Act::Hang => std::future::pending().await,
            Act::Refuse(places) => Err(SinkError::refused(places, "planned")),
        }
    }
}

pub(crate) fn check_sums(report: &SpoolReport) {
    assert_eq!(
        report.accepted + report.recovered,
        report.delivered
            + report.dead_lettered
            + report.dropped
            + report.skipped
            + report.left_on_disk
            + report.left_in_memory,
        "{report:?}"
    );
}

/// Looks until it is as asked. For what happens on a thread.
pub(crate) async fn eventually(mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "it never is");
        // On the wall's clock, also where Tokio's is paused.
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

/// Runs what waits for the disk. The paused clock stands still meanwhile: it would outrun it.
pub(crate) async fn on_disk<T>(run: impl Future<Output = T>) -> T {
    let (release, held) = std::sync::mpsc::channel::<()>();
    // Tokio does not move its clock while a thread is lent to this.
    let hold = tokio::task::spawn_blocking(move || held.recv().is_err());
    let result = run.await;
    drop(release);
    hold.await.unwrap();
    result
}
