//! A change feed that repeats itself, comes out of order and loses a change, put right per product.
//!
//! ```text
//! cargo run --example sequence
//! RUST_LOG=keylane=info cargo run --example sequence   # with a line for each attempt, on stderr
//! ```
//!
//! 1. Early changes wait for their turn, and repeated ones are duplicates. Version 4 of the kettle is
//!    lost: after 200 ms the kettle halts, the lamp goes on, and an operator gives the version up.
//! 2. The last handled version of each product is kept in a file. The process dies after a change was
//!    applied and before its version was written down: the next process applies that one change again.
//!    A restart repeats, it never skips. So a handler must bear to be called twice for one version.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use keylane::Dispatcher;
use keylane::discipline::{OnGap, Sequence};
use keylane::error::{BoxError, ReceiptError};
use keylane::source::VersionStore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;
/// A product, and the number of its version.
type Change = (&'static str, u64);
type Feed = Dispatcher<&'static str, Change, (), Infallible>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("off");
    let by_version = || Sequence::contiguous(|(_, version): &Change| *version).from(1);

    println!("1. a feed with duplicates, in the wrong order, and with a gap");
    let feed = spawn(by_version().gap_timeout(Duration::from_millis(200), OnGap::Halt))?;
    for version in [2, 1, 3, 2, 6, 5] {
        feed.send(("kettle", version)).await?;
        feed.send(("lamp", version.min(3))).await?;
    }
    while feed.stats().halted == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    let kettle = feed.lane(&"kettle");
    if let Some(view) = kettle.inspect() {
        println!("   operator: kettle, {} wait, {:?}", view.depth, view.state);
    }
    println!("   operator: version 4 will never come, skip it");
    kettle.skip()?;
    println!("   {}\n", feed.drain().await);

    println!("2. a restart");
    let path = std::env::temp_dir().join(format!("keylane-versions-{}", std::process::id()));
    for dies_at in [Some(3), None] {
        let store = VersionFile {
            path: path.clone(),
            dies_at,
        };
        let feed = spawn(by_version().store(store))?;
        println!("   a process starts, and its source sends 1 to 4");
        for version in 1..=4 {
            let receipt = feed.submit(("kettle", version)).await?;
            if dies_at == Some(version) {
                sleep(Duration::from_millis(50)).await;
                break;
            }
            match receipt.await {
                Err(ReceiptError::Duplicate(_)) => println!("   kettle {version}: a duplicate"),
                told => told?,
            }
        }
        println!("   the process ends: {}", feed.abort().await);
    }
    Ok(fs::remove_file(path)?)
}

fn spawn(sequence: Sequence<&'static str, Change>) -> Result<Feed, keylane::error::BuildError> {
    let started = Instant::now();
    Dispatcher::builder(|(product, _): &Change| *product)
        .sequence(sequence)
        .spawn(move |(product, version): Change| async move {
            let ms = started.elapsed().as_millis();
            println!("   {ms:>3} ms  {product} {version} is applied");
            Ok(())
        })
}

/// The last handled version of each product: one line for each, the last one counts.
struct VersionFile {
    path: PathBuf,
    /// At this version the process dies before it is written down.
    dies_at: Option<u64>,
}

#[keylane::async_trait]
impl VersionStore<&'static str> for VersionFile {
    async fn last(&self, product: &&'static str) -> Result<Option<u64>, BoxError> {
        let (path, product) = (self.path.clone(), *product);
        let text = spawn_blocking(move || match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            text => text,
        });
        let text = text.await??;
        let mut newest_first = text.lines().rev().filter_map(|line| line.split_once(' '));
        let last = newest_first.find(|(name, _)| *name == product);
        Ok(last.map(|(_, version)| version.parse()).transpose()?)
    }

    async fn record(&self, product: &&'static str, version: u64) -> Result<(), BoxError> {
        if self.dies_at == Some(version) {
            std::future::pending::<()>().await;
        }
        let (path, product) = (self.path.clone(), *product);
        let write = spawn_blocking(move || {
            let mut file = OpenOptions::new().append(true).create(true).open(path)?;
            writeln!(file, "{product} {version}")?;
            file.sync_data()
        });
        Ok(write.await??)
    }
}
