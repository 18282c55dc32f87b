//! The inbox against the store it stands on: redb, with commits of as many messages of the same
//! bytes, each with its sync, on the same disk and in turns.
//!
//! `cargo run --release -p keylane-inbox --example inbox_bench -- --messages 400000 --rounds 5`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::error::AcceptError;
use keylane_inbox::{Inbox, NewMessage};
use redb::{Database, TableDefinition};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The inbox against redb alone: accepting, accepting and handling, and one message at a time.
#[derive(Parser)]
struct Args {
    /// Messages of each arm and round
    #[arg(long, default_value_t = 20_000)]
    messages: u64,
    /// Rounds; the medians are shown
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Bytes of a payload
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Keys
    #[arg(long, default_value_t = 1_000)]
    keys: u64,
    /// Messages that share a commit
    #[arg(long, default_value_t = 4_096)]
    group: usize,
    /// Messages that one caller waits for, one after the other
    #[arg(long, default_value_t = 200)]
    single: usize,
    /// Where the files are made
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Messages of one call of `accept_many`.
const CALL: usize = 64;

const RAW: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("messages");

impl Args {
    fn message(&self, n: u64) -> NewMessage {
        NewMessage::new(self.key(n), vec![7; self.payload])
    }

    fn key(&self, n: u64) -> Bytes {
        Bytes::copy_from_slice(&(n % self.keys).to_be_bytes())
    }

    /// How long redb takes for all of them, with one commit and one sync for each group.
    fn raw(&self, dir: &Path, record: usize) -> Result<Duration, Failure> {
        let store = Database::create(dir.join("raw"))?;
        let record = vec![7; record];
        let began = Instant::now();
        let mut next = 0;
        while next < self.messages {
            let end = (next + self.group as u64).min(self.messages);
            let write = store.begin_write()?;
            {
                let mut table = write.open_table(RAW)?;
                for sequence in next..end {
                    table.insert(sequence, &record[..])?;
                }
            }
            write.commit()?;
            next = end;
        }
        Ok(began.elapsed())
    }

    async fn open(&self, dir: PathBuf) -> Result<Inbox, Failure> {
        let inbox = Inbox::builder(dir).group_messages(self.group);
        Ok(inbox.open().await?)
    }

    /// Has so many callers accept all messages. Two groups wait at any time: one that is written,
    /// and the next.
    async fn accept_all(self: &Arc<Self>, inbox: &Inbox) -> Result<(), Failure> {
        let next = Arc::new(AtomicU64::new(0));
        let callers = (2 * self.group).div_ceil(CALL);
        let tasks = (0..callers).map(|_| {
            let (args, inbox, next) = (Arc::clone(self), inbox.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let from = next.fetch_add(CALL as u64, Ordering::Relaxed);
                    if from >= args.messages {
                        return Ok::<_, AcceptError<Vec<NewMessage>>>(());
                    }
                    let to = (from + CALL as u64).min(args.messages);
                    inbox
                        .accept_many((from..to).map(|n| args.message(n)))
                        .await?;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        Ok(())
    }

    async fn accept(self: &Arc<Self>, dir: &Path) -> Result<Duration, Failure> {
        let inbox = self.open(dir.join("accept")).await?;
        let began = Instant::now();
        self.accept_all(&inbox).await?;
        let took = began.elapsed();
        inbox.close().await?;
        Ok(took)
    }

    /// Accepts, handles and marks done.
    async fn end_to_end(self: &Arc<Self>, dir: &Path) -> Result<Duration, Failure> {
        let inbox = self.open(dir.join("end-to-end")).await?;
        let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .on_exhausted(OnExhausted::AtSource)
            .spawn(|message: RawMessage| async move {
                std::hint::black_box(message);
                Ok::<(), std::io::Error>(())
            })?;
        let began = Instant::now();
        let intake = dispatcher.consume(inbox.source())?;
        self.accept_all(&inbox).await?;
        while intake.stats().acked < self.messages {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let report = intake.stop().await;
        let took = began.elapsed();
        if report.acked != self.messages || inbox.stats().await?.waiting > 0 {
            return Err(format!("not all is done: {report}").into());
        }
        inbox.close().await?;
        Ok(took)
    }

    /// How long each commit of one message takes: redb's, and the inbox's. In turns, so that both
    /// meet the same disk.
    async fn single(&self, dir: &Path, record: usize) -> Result<[Vec<Duration>; 2], Failure> {
        let store = Arc::new(Database::create(dir.join("raw-single"))?);
        let inbox = self.open(dir.join("accept-single")).await?;
        let (mut raw, mut accepted) = (Vec::new(), Vec::new());
        for n in 0..self.single as u64 {
            let (store, record) = (Arc::clone(&store), vec![7; record]);
            let commit = move || -> Result<Duration, redb::Error> {
                let began = Instant::now();
                let write = store.begin_write()?;
                write.open_table(RAW)?.insert(n, &record[..])?;
                write.commit()?;
                Ok(began.elapsed())
            };
            raw.push(tokio::task::spawn_blocking(commit).await??);
            let message = self.message(n);
            let began = Instant::now();
            inbox.accept_many([message]).await?;
            accepted.push(began.elapsed());
        }
        inbox.close().await?;
        Ok([raw, accepted])
    }

    /// Bytes that the inbox stores of one message, beside its number.
    async fn record(&self, dir: &Path) -> Result<usize, Failure> {
        let inbox = self.open(dir.join("record")).await?;
        inbox.accept_many([self.message(0)]).await?;
        let bytes = inbox.stats().await?.live_bytes;
        inbox.close().await?;
        Ok(usize::try_from(bytes)?.saturating_sub(size_of::<u64>()))
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The middle one, in microseconds.
fn middle(mut of: Vec<Duration>) -> f64 {
    of.sort();
    of[of.len() / 2].as_secs_f64() * 1e6
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let args = Arc::new(Args::parse());
    if args.messages == 0 || args.rounds == 0 || args.keys == 0 || args.single == 0 {
        return Err("messages, rounds, keys and single must be at least 1".into());
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let temporary = || tempfile::tempdir_in(&parent);
    let record = args.record(temporary()?.path()).await?;
    let (mut raw, mut accepted, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let (mut raw_single, mut single) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        let dir = temporary()?;
        let per_second = |took: Duration| args.messages as f64 / took.as_secs_f64();
        let arm = Arc::clone(&args);
        let path = dir.path().to_owned();
        let took = tokio::task::spawn_blocking(move || arm.raw(&path, record)).await??;
        raw.push(per_second(took));
        accepted.push(per_second(args.accept(dir.path()).await?));
        done.push(per_second(args.end_to_end(dir.path()).await?));
        let [raw_took, took] = args.single(dir.path(), record).await?;
        raw_single.push(middle(raw_took));
        single.push(middle(took));
        eprintln!("round {} of {}", round + 1, args.rounds);
    }
    let ratio = |of: &[f64], to: &[f64]| {
        let ratios = of.iter().zip(to).map(|(of, to)| of / to);
        median(ratios.collect())
    };
    let ratios = (
        ratio(&accepted, &raw),
        ratio(&done, &raw),
        ratio(&single, &raw_single),
    );
    println!(
        "{} messages of {} bytes, {record} as stored, {} keys, commits of {}; {} rounds\n",
        args.messages, args.payload, args.keys, args.group, args.rounds
    );
    println!("| | redb alone | inbox | ratio | bar |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let (raw, single, raw_single) = (median(raw), median(single), median(raw_single));
    let (accepted, done) = (median(accepted), median(done));
    println!(
        "| accepted, messages/s | {raw:.0} | {accepted:.0} | {:.2} | ≥ 0.8 |",
        ratios.0
    );
    println!(
        "| accepted, handled and done, messages/s | {raw:.0} | {done:.0} | {:.2} | ≥ 0.4 |",
        ratios.1
    );
    println!(
        "| one caller, median µs | {raw_single:.0} | {single:.0} | {:.2} | ≤ 1.3 |",
        ratios.2
    );
    Ok(())
}
