//! The spool against a naive loop of single writes to the same sink: accepted and delivered
//! messages per second, and how long a push takes. The sinks: some that take a set time for each
//! write, and an inbox.
//!
//! `cargo run --release -p keylane-inbox --example spool_bench -- --full [dir]`
//!
//! Without `--full` there are fewer sinks, and each case runs for a moment: that shows that it
//! works, and no figures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use keylane_inbox::Inbox;
use keylane_spool::{Persist, SinkError, Spool, SpoolSink, Spooled, async_trait};

const PAYLOAD: usize = 256;
const KEYS: usize = 1_000;
/// How long each case pushes, with `--full` and without.
const FULL: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(20);

type Error = Box<dyn std::error::Error>;

/// Takes this long for each write, of one message or of many. By spinning, as the timer of the
/// runtime counts milliseconds.
#[derive(Clone)]
struct Slow(Duration);

#[async_trait]
impl SpoolSink for Slow {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        std::hint::black_box(batch);
        self.pause().await;
        Ok(())
    }
}

impl Slow {
    async fn pause(&self) {
        let started = Instant::now();
        if self.0 >= Duration::from_millis(1) {
            tokio::time::sleep(self.0).await;
        }
        while started.elapsed() < self.0 {
            tokio::task::yield_now().await;
        }
    }
}

struct Figures {
    accepted: f64,
    delivered: f64,
    pushes: Histogram<u64>,
}

fn histogram() -> Result<Histogram<u64>, Error> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn message(n: usize) -> (Bytes, Bytes) {
    let key = Bytes::copy_from_slice(&(n % KEYS).to_le_bytes());
    (key, Bytes::from(vec![7; PAYLOAD]))
}

/// One call of `write` for each message.
async fn naive(
    time: Duration,
    write: impl AsyncFn(Bytes, Bytes) -> Result<(), Error>,
) -> Result<Figures, Error> {
    let mut pushes = histogram()?;
    let started = Instant::now();
    let mut n = 0;
    while started.elapsed() < time {
        let pushed = Instant::now();
        let (key, payload) = message(n);
        write(key, payload).await?;
        pushes.record(pushed.elapsed().as_nanos() as u64)?;
        n += 1;
    }
    let rate = n as f64 / started.elapsed().as_secs_f64();
    Ok(Figures {
        accepted: rate,
        delivered: rate,
        pushes,
    })
}

#[derive(Clone, Copy)]
struct Case {
    how: &'static str,
    persist: Persist,
    producers: usize,
    has_disk: bool,
}

const CASES: [Case; 6] = [
    Case {
        how: "memory",
        persist: Persist::None,
        producers: 1,
        has_disk: false,
    },
    Case {
        how: "`None`, with a disk",
        persist: Persist::None,
        producers: 1,
        has_disk: true,
    },
    Case {
        how: "`EveryMessages(10_000)`",
        persist: Persist::EveryMessages(10_000),
        producers: 1,
        has_disk: true,
    },
    Case {
        how: "`Every(100 ms)`",
        persist: Persist::Every(Duration::from_millis(100)),
        producers: 1,
        has_disk: true,
    },
    Case {
        how: "`Each`",
        persist: Persist::Each,
        producers: 1,
        has_disk: true,
    },
    Case {
        how: "`Each`, 256 producers",
        persist: Persist::Each,
        producers: 256,
        has_disk: true,
    },
];

async fn spool(
    time: Duration,
    sink: impl SpoolSink,
    dir: &Path,
    case: Case,
) -> Result<Figures, Error> {
    let mut builder = Spool::builder(sink).persist(case.persist);
    if case.has_disk {
        builder = builder.dir(dir);
    }
    let spool = builder.open().await?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..case.producers)
        .map(|producer| {
            let spool = spool.clone();
            tokio::spawn(async move {
                let mut pushes = histogram().map_err(|error| error.to_string())?;
                let mut n = producer;
                while started.elapsed() < time {
                    let (key, payload) = message(n);
                    let pushed = Instant::now();
                    let accepted = spool.push(key, payload).await;
                    accepted.map_err(|error| error.to_string())?;
                    pushes
                        .record(pushed.elapsed().as_nanos() as u64)
                        .map_err(|error| error.to_string())?;
                    n += case.producers;
                }
                Ok::<_, String>(pushes)
            })
        })
        .collect();
    let mut pushes = histogram()?;
    for task in tasks {
        pushes.add(task.await??)?;
    }
    let accepted = pushes.len() as f64 / started.elapsed().as_secs_f64();
    let report = spool.close().await;
    assert_eq!(report.delivered, pushes.len(), "{report}");
    let delivered = report.delivered as f64 / started.elapsed().as_secs_f64();
    Ok(Figures {
        accepted,
        delivered,
        pushes,
    })
}

fn print(sink: &str, how: &str, figures: &Figures) {
    let micros = |q: f64| figures.pushes.value_at_quantile(q) as f64 / 1_000.0;
    println!(
        "| {sink} | {how} | {:.0} | {:.0} | {:.1} | {:.1} |",
        figures.accepted,
        figures.delivered,
        micros(0.5),
        micros(0.99)
    );
}

/// All cases with one sink.
async fn cases(
    time: Duration,
    name: &str,
    sink: impl SpoolSink + Clone,
    dir: &Path,
) -> Result<(), Error> {
    for (n, case) in CASES.into_iter().enumerate() {
        let dir = dir.join(format!("{name}-{n}"));
        print(
            name,
            case.how,
            &spool(time, sink.clone(), &dir, case).await?,
        );
        if case.has_disk {
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_full = arguments.next_if(|argument| argument == "--full").is_some();
    let time = if is_full { FULL } else { MOMENT };
    let parent = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("spool-bench-{}", std::process::id()));
    println!("{PAYLOAD} bytes, {KEYS} keys, batches of 500; one producer unless said\n");
    println!("| sink | how | accepted/s | delivered/s | push p50 µs | push p99 µs |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    let sinks = [("100 µs", 100), ("0", 0), ("1 ms", 1_000)];
    for (name, micros) in sinks.into_iter().take(if is_full { 3 } else { 1 }) {
        let sink = Slow(Duration::from_micros(micros));
        let write = async |key, payload| {
            std::hint::black_box((key, payload));
            sink.pause().await;
            Ok(())
        };
        print(name, "naive loop", &naive(time, write).await?);
        cases(time, name, sink.clone(), &dir).await?;
    }
    let inbox = Inbox::open(dir.join("inbox")).await?;
    let write = async |key, payload| {
        inbox.accept(key, payload).await?;
        Ok(())
    };
    print("inbox", "naive loop", &naive(time, write).await?);
    cases(time, "inbox", inbox.clone(), &dir).await?;
    inbox.close().await?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
