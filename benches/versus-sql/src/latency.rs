//! How soon a message is handled on an idle system.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use testkit_servers::Postgres;

use crate::Error;
use crate::contenders::{Id, Setup};
use crate::measure::{Place, stop};
use crate::message::Traffic;
use crate::work::Work;

/// How often a message comes.
const EVERY: Duration = Duration::from_millis(10);

/// How long the workers are left alone before the first one.
const IDLE: Duration = Duration::from_secs(1);

/// How long the last messages are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was measured, in milliseconds from the end of the commit to the start of the handler.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Of which queue.
    pub id: Id,
    /// Half of the messages were faster.
    pub p50: f64,
    /// All but a hundredth were.
    pub p99: f64,
    /// The slowest one.
    pub max: f64,
    /// Messages that were never handled.
    pub lost: u64,
}

/// Measures one queue with a worker.
///
/// # Panics
///
/// Never: the range of the figures is a constant.
pub async fn measure(server: &Postgres, id: Id, messages: u64) -> Result<Latency, Error> {
    let place = Place::new(server).await?;
    let setup = Setup {
        workers: 1,
        keys: messages,
    };
    let traffic = Traffic {
        messages,
        keys: messages,
    };
    let mut queue = id.open(&place.address, setup).await?;
    let work = Work::noting_starts(traffic);
    queue.begin(&work).await?;
    tokio::time::sleep(IDLE).await;

    let mut committed = Vec::new();
    let mut clock = tokio::time::interval(EVERY);
    for message in traffic.slice(0..messages) {
        clock.tick().await;
        queue.enqueue(&[message]).await?;
        committed.push(Instant::now());
    }
    let _ = tokio::time::timeout(PATIENCE, work.done()).await;

    let mut figures =
        Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order");
    let starts = work.starts();
    for (message, started) in &starts {
        // It may start before the producer hears of its own commit.
        let waited = started.saturating_duration_since(committed[message.key as usize]);
        figures.saturating_record(waited.as_micros() as u64);
    }
    stop(queue, place, server).await?;
    let at = |quantile| figures.value_at_quantile(quantile) as f64 / 1_000.0;
    Ok(Latency {
        id,
        p50: at(0.5),
        p99: at(0.99),
        max: figures.max() as f64 / 1_000.0,
        lost: messages - (starts.len() as u64).min(messages),
    })
}
