//! Senders that are faster than the handlers wait, and only those who must.
//!
//! ```text
//! cargo run --example backpressure
//! RUST_LOG=keylane=info cargo run --example backpressure   # with a line for each attempt, on stderr
//! ```
//!
//! 1. The capacity: with room for four messages, the first four sends return at once. Each one
//!    after that waits until a message is done.
//! 2. The capacity of a lane: one device sends a message each millisecond, and each takes 20. Only
//!    its sender is held back. The other devices, later in time, do not notice.
//! 3. `try_send` never waits. It gives the message back, and says which of the two limits it met.

use std::convert::Infallible;
use std::time::Duration;

use keylane::error::TrySendError;
use keylane::{Dispatcher, Overflow};
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;

#[derive(Debug, Clone, Copy)]
struct Reading {
    device: u32,
}

const FLOOD: u32 = 0;

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("warn");
    capacity().await?;
    lane_capacity().await?;
    without_waiting().await
}

async fn capacity() -> Result<(), Error> {
    println!("1. room for 4 messages, one handler, 50 ms each");
    let readings = Dispatcher::builder(|reading: &Reading| reading.device)
        .concurrency(1)
        .capacity(4)
        .spawn(|_: Reading| handle_in(50))?;
    let started = Instant::now();
    for device in 1..=8 {
        readings.send(Reading { device }).await?;
        println!("   sent {device} after {} ms", millis(started));
    }
    println!("   {}\n", readings.drain().await);
    Ok(())
}

async fn lane_capacity() -> Result<(), Error> {
    println!("2. room for 1,000 messages, but 8 of each device; a flood of one comes first");
    let readings = Dispatcher::builder(|reading: &Reading| reading.device)
        .capacity(1_000)
        .lane_capacity(8, Overflow::Wait)
        .spawn(|_: Reading| handle_in(20))?;
    let started = Instant::now();
    let flood = tokio::spawn({
        let readings = readings.clone();
        async move {
            for _ in 0..50 {
                readings.send(Reading { device: FLOOD }).await?;
                sleep(Duration::from_millis(1)).await;
            }
            println!("   the flood is sent after {} ms", millis(started));
            Ok::<_, keylane::error::SendError<Reading>>(())
        }
    });
    // The flood has its head start.
    sleep(Duration::from_millis(50)).await;
    let others = Instant::now();
    for device in 1..=200 {
        let receipt = readings.submit(Reading { device }).await?;
        if device == 200 {
            receipt.await?;
        }
    }
    let lane = readings.inspect(&FLOOD).map_or(0, |lane| lane.depth);
    println!(
        "   200 other devices are sent, and the last one is done, in {} ms",
        millis(others)
    );
    println!("   meanwhile the lane of the flood is {lane} deep");
    flood.await??;
    println!("   {}\n", readings.drain().await);
    Ok(())
}

async fn without_waiting() -> Result<(), Error> {
    println!("3. room for 8 messages, but 3 of each device; no sender waits");
    let readings = Dispatcher::builder(|reading: &Reading| reading.device)
        .capacity(8)
        .lane_capacity(3, Overflow::Reject)
        .spawn(|_: Reading| handle_in(20))?;
    let (mut sent, mut lane_full, mut full) = (0, 0, 0);
    for number in 0..40 {
        // Every second message is of the flood.
        let device = if number % 2 == 0 { FLOOD } else { number };
        match readings.try_send(Reading { device }) {
            Ok(()) => sent += 1,
            Err(TrySendError::LaneFull(_)) => lane_full += 1,
            Err(TrySendError::Full(_)) => full += 1,
            Err(error) => return Err(error.into()),
        }
        sleep(Duration::from_millis(1)).await;
    }
    println!("   40 tries: {sent} sent, {lane_full} times the lane was full, {full} times all was");
    println!("   {}", readings.drain().await);
    Ok(())
}

async fn handle_in(ms: u64) -> Result<(), Infallible> {
    sleep(Duration::from_millis(ms)).await;
    Ok(())
}

fn millis(since: Instant) -> u128 {
    since.elapsed().as_millis()
}
