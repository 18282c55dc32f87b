//! Ctrl-C, and every accepted message is accounted for.
//!
//! ```text
//! cargo run --example graceful_shutdown
//! RUST_LOG=keylane=info cargo run --example graceful_shutdown   # with a line for each attempt, on stderr
//! ```
//!
//! Press Ctrl-C, or wait three seconds for the same. No more comes in, what is in is given one
//! second, and then the report says what became of every message. One job is far too long: it is
//! dropped in the middle, those behind it come back unhandled, and the sum is right. What comes back
//! is yours to put where it came from.

use std::convert::Infallible;
use std::time::Duration;

use keylane::Dispatcher;
use keylane::error::SendError;
use tokio::time::{Instant, sleep, timeout};

#[derive(Debug)]
struct Job {
    customer: u32,
    number: u32,
}

/// The customer whose jobs never end.
const SLOW: u32 = 7;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("warn");
    let jobs = Dispatcher::builder(|job: &Job| job.customer)
        .concurrency(16)
        .spawn(|job: Job| async move {
            let ms = if job.customer == SLOW { 60_000 } else { 30 };
            sleep(Duration::from_millis(ms)).await;
            Ok::<_, Infallible>(())
        })?;

    let producer = tokio::spawn(produce(jobs.clone()));
    println!("working; press Ctrl-C to stop, or wait three seconds");
    match timeout(Duration::from_secs(3), tokio::signal::ctrl_c()).await {
        Ok(pressed) => pressed?,
        Err(_) => println!("three seconds are over"),
    }
    let stats = jobs.stats();
    println!(
        "stopping: {} accepted, {} done, {} in flight",
        stats.accepted, stats.done, stats.in_flight
    );

    let stopped = Instant::now();
    let report = jobs.drain().within(Duration::from_secs(1)).await;
    println!(
        "stopped after {} ms: {report}",
        stopped.elapsed().as_millis()
    );
    for back in report.returned {
        let customer = back.key.unwrap_or_default();
        match back.message {
            // The handler has the message: there is no clone of it where nothing is ever retried.
            None => println!("  dropped in the middle: a job of customer {customer}"),
            Some(job) => {
                let what = if back.attempts == 0 {
                    "not started"
                } else {
                    "tried"
                };
                println!("  {what}: job {} of customer {customer}", job.number);
            }
        }
    }

    // The producer has learned of it from its own send, and has its job back.
    let refused = producer.await?;
    println!("the producer stopped at job {}", refused.number);
    Ok(())
}

/// Sends jobs until one comes back.
async fn produce(jobs: Dispatcher<u32, Job, (), Infallible>) -> Job {
    let mut number = 0;
    loop {
        number += 1;
        // The slow customer has few jobs, or they would fill the list at the end.
        let customer = match number % 100 {
            0 => SLOW,
            rest => 100 + rest % 20,
        };
        if let Err(error) = jobs.send(Job { customer, number }).await {
            return SendError::into_inner(error);
        }
        sleep(Duration::from_millis(5)).await;
    }
}
