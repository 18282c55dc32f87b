//! Readings of one device are written with one insert, and the one that the database refuses is found.
//!
//! ```text
//! cargo run --example batches
//! RUST_LOG=keylane=info cargo run --example batches   # with a line for each attempt, on stderr
//! ```
//!
//! An insert takes 20 ms, however many rows it has. So what came meanwhile is written together, device
//! by device, in order. One reading of the cellar is not a number, and the table refuses it.
//!
//! 1. The insert is all or nothing, and answers for all rows: `Result<(), E>`. When it fails, its first
//!    reading is tried again by itself, then the others together, until the bad one is alone.
//! 2. The database answers for each row: `Vec<Result<(), E>>`. Only the bad one is tried again.

use std::time::Duration;

use keylane::{Dispatcher, Retry};
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;
type Receipt = keylane::Receipt<Reading, (), Refused>;

#[derive(Debug, Clone, Copy)]
struct Reading {
    device: &'static str,
    celsius: f64,
}

#[derive(Debug, thiserror::Error)]
#[error("the column `celsius` takes numbers")]
struct Refused;

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("off");
    println!("1. one answer for the whole insert");
    let started = Instant::now();
    let readings = Dispatcher::builder(|reading: &Reading| reading.device)
        .batch(6, Duration::from_millis(5))
        // Without a retry a failed batch is given up as a whole.
        .retry(Retry::fixed(Duration::from_millis(10)).max_attempts(2))
        .spawn_batches(move |rows: Vec<Reading>| async move {
            let refused = insert(started, &rows).await;
            if refused > 0 { Err(Refused) } else { Ok(()) }
        })?;
    let mut receipts = Vec::new();
    for reading in measured() {
        receipts.push((reading, readings.submit(reading).await?));
    }
    tell(receipts).await;
    println!("   {}\n", readings.drain().await);

    println!("2. one answer for each row");
    let started = Instant::now();
    let readings = Dispatcher::builder(|reading: &Reading| reading.device)
        .batch(6, Duration::from_millis(5))
        .retry(Retry::fixed(Duration::from_millis(10)).max_attempts(2))
        .spawn_batches(move |rows: Vec<Reading>| async move {
            insert(started, &rows).await;
            rows.iter().map(check).collect::<Vec<_>>()
        })?;
    let mut receipts = Vec::new();
    for reading in measured() {
        receipts.push((reading, readings.submit(reading).await?));
    }
    tell(receipts).await;
    println!("   {}", readings.drain().await);
    Ok(())
}

/// Eight readings of the attic, and six of the cellar, the fourth of which is bad.
fn measured() -> impl Iterator<Item = Reading> {
    let attic = (0..8).map(|n| ("attic", 25.0 + f64::from(n) / 10.0));
    let cellar = [11.0, 11.1, 11.2, f64::NAN, 11.4, 11.5].map(|celsius| ("cellar", celsius));
    attic
        .chain(cellar)
        .map(|(device, celsius)| Reading { device, celsius })
}

fn check(row: &Reading) -> Result<(), Refused> {
    if row.celsius.is_nan() {
        Err(Refused)
    } else {
        Ok(())
    }
}

/// One insert. Returns how many rows were refused.
async fn insert(started: Instant, rows: &[Reading]) -> usize {
    let ms = started.elapsed().as_millis();
    sleep(Duration::from_millis(20)).await;
    let refused = rows.iter().filter(|row| check(row).is_err()).count();
    let celsius: Vec<_> = rows.iter().map(|row| row.celsius.to_string()).collect();
    println!(
        "   {ms:>3} ms  {:<6} inserts {} {:<36} {}",
        rows[0].device,
        rows.len(),
        celsius.join(" "),
        if refused > 0 { "<- refused" } else { "" },
    );
    refused
}

/// What the senders of refused readings are told.
async fn tell(receipts: Vec<(Reading, Receipt)>) {
    for (Reading { device, celsius }, receipt) in receipts {
        if let Err(why) = receipt.await {
            println!("   {device} {celsius}: {why}");
        }
    }
}
