//! Dispatchers at rest: what each takes, how busy they keep a runtime, and how fast they drain.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use futures::future::join_all;
use keylane::Dispatcher;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::allocator::live_bytes_at_rest;
use crate::measure;

/// How long they are watched.
const REST: Duration = Duration::from_secs(2);

/// Many dispatchers with the default settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// How many.
    pub dispatchers: usize,
    /// Bytes of each that has never had a message.
    pub new_bytes: f64,
    /// Bytes of each once it has handled one message.
    pub used_bytes: f64,
    /// What all of them together keep the runtime's workers busy while nothing is sent: milliseconds
    /// per second.
    pub busy_ms_per_second: f64,
    /// Milliseconds until all of them are drained, all asked at once.
    pub drain_ms: f64,
}

/// Measures so many of them.
pub fn measure(dispatchers: usize) -> Idle {
    let runtime = measure::runtime();
    let before = live_bytes_at_rest();
    let all: Vec<_> = {
        let _inside = runtime.enter();
        let lanes = || Dispatcher::builder(|key: &u64| *key).spawn(handle);
        let started = (0..dispatchers).map(|_| lanes().expect("the settings agree"));
        started.collect()
    };
    let new = live_bytes_at_rest() - before;
    runtime.block_on(async {
        let answers = join_all(all.iter().map(async |lanes| {
            let receipt = lanes.submit(1).await.expect("it is open");
            receipt.await.expect("the handler does not fail");
        }));
        answers.await;
    });
    let used = live_bytes_at_rest() - before;

    let busy = busy_time(&runtime);
    std::thread::sleep(REST);
    let busy = busy_time(&runtime) - busy;

    let began = Instant::now();
    runtime.block_on(async {
        join_all(all.iter().map(|lanes| lanes.drain().into_future())).await;
    });
    let drained = began.elapsed();
    runtime.shutdown_timeout(Duration::from_secs(10));
    Idle {
        dispatchers,
        new_bytes: new as f64 / dispatchers as f64,
        used_bytes: used as f64 / dispatchers as f64,
        busy_ms_per_second: busy.as_secs_f64() * 1_000.0 / REST.as_secs_f64(),
        drain_ms: drained.as_secs_f64() * 1_000.0,
    }
}

/// Of all workers together.
fn busy_time(runtime: &Runtime) -> Duration {
    let metrics = runtime.metrics();
    let workers = 0..metrics.num_workers();
    workers
        .map(|worker| metrics.worker_total_busy_duration(worker))
        .sum()
}

async fn handle(_: u64) -> Result<(), Infallible> {
    Ok(())
}
