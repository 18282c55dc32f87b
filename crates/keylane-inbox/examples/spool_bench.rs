//! The spool against a naive loop of single writes to the same sink: accepted and delivered
//! messages per second, and how long a push takes.
//!
//! `cargo run --release -p keylane-inbox --example spool_bench [dir]`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use keylane_inbox::spool::{Persist, SinkError, Spool, SpoolSink, Spooled, async_trait};

const PAYLOAD: usize = 256;
const KEYS: usize = 1_000;
/// Each case runs about as long.
const TIME: Duration = Duration::from_secs(2);

/// Takes this long for each write, of one message or of many. By spinning, as the timer of the
/// runtime counts milliseconds.
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

fn histogram() -> Result<Histogram<u64>, Box<dyn std::error::Error>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn message(n: usize) -> (Bytes, Bytes) {
    let key = Bytes::copy_from_slice(&(n % KEYS).to_le_bytes());
    (key, Bytes::from(vec![7; PAYLOAD]))
}

async fn naive(latency: Duration) -> Result<Figures, Box<dyn std::error::Error>> {
    let sink = Slow(latency);
    let mut pushes = histogram()?;
    let started = Instant::now();
    let mut n = 0;
    while started.elapsed() < TIME {
        let pushed = Instant::now();
        std::hint::black_box(message(n));
        sink.pause().await;
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

async fn spool(
    latency: Duration,
    dir: Option<&Path>,
    persist: Persist,
    producers: usize,
) -> Result<Figures, Box<dyn std::error::Error>> {
    let mut builder = Spool::builder(Slow(latency)).persist(persist);
    if let Some(dir) = dir {
        builder = builder.dir(dir.join(format!("{persist:?}-{latency:?}-{producers}")));
    }
    let spool = builder.open().await?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..producers)
        .map(|producer| {
            let spool = spool.clone();
            tokio::spawn(async move {
                let mut pushes = histogram().map_err(|error| error.to_string())?;
                let mut n = producer;
                while started.elapsed() < TIME {
                    let (key, payload) = message(n);
                    let pushed = Instant::now();
                    let accepted = spool.push(key, payload).await;
                    accepted.map_err(|error| error.to_string())?;
                    pushes
                        .record(pushed.elapsed().as_nanos() as u64)
                        .map_err(|error| error.to_string())?;
                    n += producers;
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

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("spool-bench-{}", std::process::id()));
    println!("{PAYLOAD} bytes, {KEYS} keys, batches of 500; one producer unless said\n");
    println!("| sink | how | accepted/s | delivered/s | push p50 µs | push p99 µs |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    let sinks = [("0", 0), ("100 µs", 100), ("1 ms", 1_000)];
    for (name, micros) in sinks {
        let latency = Duration::from_micros(micros);
        print(name, "naive loop", &naive(latency).await?);
        print(
            name,
            "memory",
            &spool(latency, None, Persist::None, 1).await?,
        );
        for (how, persist, producers) in [
            ("`None`, with a disk", Persist::None, 1),
            ("`EveryMessages(10_000)`", Persist::EveryMessages(10_000), 1),
            (
                "`Every(100 ms)`",
                Persist::Every(Duration::from_millis(100)),
                1,
            ),
            ("`Each`", Persist::Each, 1),
            ("`Each`, 256 producers", Persist::Each, 256),
        ] {
            print(
                name,
                how,
                &spool(latency, Some(&dir), persist, producers).await?,
            );
        }
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
