//! The workers: this program once more, in processes that can be killed and paused.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use examples::{Again, Said};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::place::Place;
use crate::worker::{Job, Word};

/// How long a worker may take to finish what it has begun.
const PATIENCE: Duration = Duration::from_secs(30);

/// All workers. Each is killed when this is dropped, which waits for its end.
pub(crate) struct Crew {
    place: Place,
    keys: usize,
    work: Duration,
    is_apart: bool,
    workers: Vec<Worker>,
    tallies: Vec<Arc<Tally>>,
}

struct Worker {
    name: String,
    /// While its input is open, the worker works.
    process: Again,
    listener: JoinHandle<()>,
}

/// What a worker has said so far. Relaxed: they are read when its output has ended.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: String,
    stale: AtomicU64,
    earlier: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
}

impl Tally {
    fn count(&self, word: Word) {
        let counter = match word {
            Word::Ready => return,
            Word::Stale => &self.stale,
            Word::Earlier => &self.earlier,
            Word::Failed => &self.failed,
            Word::Lost => &self.lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stale(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    pub(crate) fn earlier(&self) -> u64 {
        self.earlier.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Crew {
    pub(crate) fn new(place: Place, keys: usize, work: Duration, is_apart: bool) -> Self {
        Self {
            place,
            keys,
            work,
            is_apart,
            workers: Vec::new(),
            tallies: Vec::new(),
        }
    }

    /// Starts one more, and waits until it works. Returns its name.
    pub(crate) async fn start(&mut self) -> Result<String, Failure> {
        let name = format!("worker {}", self.tallies.len() + 1);
        let job = Job {
            name: name.clone(),
            place: self.place.clone(),
            keys: self.keys,
            work: self.work,
            is_apart: self.is_apart,
        };
        let tally = Arc::new(Tally {
            name: name.clone(),
            ..Tally::default()
        });
        self.workers
            .push(Worker::start(&job, Arc::clone(&tally)).await?);
        self.tallies.push(tally);
        Ok(name)
    }

    /// Kills it as it is: SIGKILL.
    pub(crate) async fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.at(name)?;
        let mut worker = self.workers.remove(at);
        worker.process.kill().await?;
        Ok(worker.listener.await?)
    }

    /// Sends `STOP` or `CONT`.
    pub(crate) async fn signal(&self, name: &str, signal: &str) -> Result<(), Failure> {
        let worker = &self.workers[self.at(name)?];
        Ok(worker.process.signal(signal).await?)
    }

    /// An error if one has ended that should not.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            if let Some(status) = worker.process.ended()? {
                return Err(format!("{} has ended with {status}", worker.name).into());
            }
        }
        Ok(())
    }

    /// Has all finish what they have begun, and returns what was said by all that ever were.
    pub(crate) async fn stop(mut self) -> Result<Vec<Arc<Tally>>, Failure> {
        let mut workers = take(&mut self.workers);
        for worker in &mut workers {
            worker.process.close_input();
        }
        for mut worker in workers {
            let name = &worker.name;
            let status = worker.process.wait(PATIENCE).await;
            let status = status.map_err(|error| format!("{name}: {error}"))?;
            if !status.success() {
                return Err(format!("{name} has ended with {status}").into());
            }
            worker.listener.await?;
        }
        Ok(take(&mut self.tallies))
    }

    fn at(&self, name: &str) -> Result<usize, Failure> {
        let at = self.workers.iter().position(|worker| worker.name == name);
        at.ok_or_else(|| format!("there is no {name}").into())
    }
}

impl Worker {
    async fn start(job: &Job, tally: Arc<Tally>) -> Result<Self, Failure> {
        let (mut process, mut output) = Again::start("worker")?;
        process.tell(&serde_json::to_string(job)?).await?;
        let first = output.next_line().await?;
        if first.as_deref().and_then(word) != Some(Word::Ready) {
            let status = process.wait(PATIENCE).await?;
            let name = &job.name;
            return Err(format!("{name} has not begun ({status}), and says why above").into());
        }
        Ok(Self {
            name: job.name.clone(),
            process,
            listener: tokio::spawn(listen(output, tally)),
        })
    }
}

async fn listen(mut output: Said, tally: Arc<Tally>) {
    while let Ok(Some(line)) = output.next_line().await {
        if let Some(word) = word(&line) {
            tally.count(word);
        }
    }
}

/// The last line of a worker that was killed may be a part of one.
fn word(line: &str) -> Option<Word> {
    serde_json::from_str(line).ok()
}
