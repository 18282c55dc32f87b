//! The workers: this program once more, in processes that can be killed.

use std::mem::take;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Failure;
use crate::member::Status;
use crate::worker::{Job, Word};

/// How long a worker may take to finish what it has begun.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the system may take to end processes that are killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// All workers. They are killed when this is dropped, which waits for their ends.
pub(crate) struct Crew {
    /// Of the next one.
    job: Job,
    workers: Vec<Worker>,
    /// What those that were killed had handled.
    handled_by_dead: u64,
}

struct Worker {
    number: u32,
    child: Child,
    /// While it is open, the worker works.
    input: ChildStdin,
    listener: JoinHandle<()>,
    console: SocketAddr,
    status: Arc<Mutex<Status>>,
}

impl Crew {
    /// `job` is that of the first worker.
    pub(crate) fn new(job: Job) -> Self {
        Self {
            job,
            workers: Vec::new(),
            handled_by_dead: 0,
        }
    }

    /// Starts one more, and waits until it works. Returns its number, and where its console is.
    pub(crate) async fn start(&mut self) -> Result<(u32, SocketAddr), Failure> {
        let worker = Worker::start(&self.job).await?;
        let started = (worker.number, worker.console);
        self.workers.push(worker);
        self.job.number += 1;
        Ok(started)
    }

    /// Kills the one with the most in its hands, as it is: SIGKILL. Returns its number when it is dead.
    pub(crate) async fn kill_busiest(&mut self) -> Result<u32, Failure> {
        let busy = self.workers.iter().enumerate();
        let busiest = busy.max_by_key(|(_, worker)| worker.status().held);
        let (at, _) = busiest.ok_or("there is no worker")?;
        let mut worker = self.workers.remove(at);
        worker.child.kill().await?;
        worker.listener.await?;
        let status = worker.status.lock().unwrap_or_else(PoisonError::into_inner);
        self.handled_by_dead += status.handled;
        Ok(worker.number)
    }

    /// An error if one has ended that should not.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            if let Some(status) = worker.child.try_wait()? {
                return Err(format!("worker {} has ended with {status}", worker.number).into());
            }
        }
        Ok(())
    }

    /// What the living have said last, by their numbers.
    pub(crate) fn statuses(&self) -> Vec<(u32, Status)> {
        let workers = self.workers.iter();
        workers.map(|one| (one.number, one.status())).collect()
    }

    /// How often an order was handled, as far as was heard.
    pub(crate) fn handled(&self) -> u64 {
        let living = self.workers.iter().map(|worker| worker.status().handled);
        living.sum::<u64>() + self.handled_by_dead
    }

    /// Has all finish what they have begun.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        let mut ends = Vec::new();
        for worker in take(&mut self.workers) {
            drop(worker.input);
            ends.push((worker.number, worker.child, worker.listener));
        }
        for (number, mut child, listener) in ends {
            let status = timeout(PATIENCE, child.wait()).await;
            let status = status.map_err(|_| format!("worker {number} does not end"))??;
            if !status.success() {
                return Err(format!("worker {number} has ended with {status}").into());
            }
            listener.await?;
        }
        Ok(())
    }
}

/// When it returns, no worker runs any more: what comes after it may say so.
impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // It may have ended.
            let _ = worker.child.start_kill();
        }
        let until = Instant::now() + KILLED_WITHIN;
        for worker in &mut self.workers {
            while matches!(worker.child.try_wait(), Ok(None)) && Instant::now() < until {
                sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Worker {
    async fn start(job: &Job) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the demo, which ends its workers itself.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().ok_or("the input is piped")?;
        let output = child.stdout.take().ok_or("the output is piped")?;
        let line = serde_json::to_string(job)? + "\n";
        input.write_all(line.as_bytes()).await?;
        let mut output = BufReader::new(output).lines();
        let first = output.next_line().await?;
        let Some(Word::Ready(console)) = first.as_deref().and_then(word) else {
            let status = child.wait().await?;
            let number = job.number;
            return Err(
                format!("worker {number} has not begun ({status}), and says why above").into(),
            );
        };
        let status = Arc::default();
        Ok(Self {
            number: job.number,
            child,
            input,
            listener: tokio::spawn(listen(output, Arc::clone(&status))),
            console,
            status,
        })
    }

    fn status(&self) -> Status {
        let status = self.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn listen(mut output: Lines<BufReader<ChildStdout>>, last: Arc<Mutex<Status>>) {
    while let Ok(Some(line)) = output.next_line().await {
        if let Some(Word::Status(status)) = word(&line) {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = status;
        }
    }
}

/// The last line of a worker that was killed may be a part of one.
fn word(line: &str) -> Option<Word> {
    serde_json::from_str(line).ok()
}
