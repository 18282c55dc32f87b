//! Pulling beside keys that are busy: what `dequeue` and `complete` cost together, by the number of
//! messages that are parked because their keys are leased.

use std::hint::black_box;
use std::time::{Duration, Instant};

use keylane_queue::{Lease, Queue};
use serde::Serialize;

use crate::contenders::naive_queue::NaiveQueue;
use crate::measure;

/// Messages that are parked.
pub const PARKED: [u64; 3] = [1, 1_000, 100_000];

/// Keys that are leased while it is measured; the parked messages are spread over them.
const BUSY: u64 = 1_000;

/// Keys that are free, and messages of them between two looks at the clock.
const FREE: u64 = 64;

/// Of the message.
type Message = [u64; 2];

/// One queue at one number of parked messages.
#[derive(Clone, Debug, Serialize)]
pub struct Pull {
    /// Which queue.
    pub queue: &'static str,
    /// Messages parked behind leased keys.
    pub parked: u64,
    /// Nanoseconds of one `dequeue` and its `complete`: the median of the rounds' medians.
    pub nanos: f64,
}

/// Measures both queues, in turns.
pub fn measure(quick: bool, rounds: usize) -> Vec<Pull> {
    let time = Duration::from_millis(if quick { 50 } else { 500 });
    let mut pulls = Vec::new();
    for parked in PARKED {
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            samples[0].push(run(lanes(parked, time)));
            samples[1].push(run(list(parked, time)));
        }
        for (queue, mut nanos) in ["keylane", "naive list"].into_iter().zip(samples) {
            nanos.sort_by(f64::total_cmp);
            pulls.push(Pull {
                queue,
                parked,
                nanos: nanos[nanos.len() / 2],
            });
        }
    }
    pulls
}

/// On a worker of a fresh runtime, as everything here.
fn run(measurement: impl Future<Output = f64> + Send + 'static) -> f64 {
    let runtime = measure::runtime();
    let nanos = runtime.block_on(runtime.spawn(measurement));
    nanos.expect("no measurement panics")
}

async fn lanes(parked: u64, time: Duration) -> f64 {
    let queue = Queue::builder(|message: &Message| message[0])
        .capacity(1 << 20)
        .lease_time(Duration::from_secs(3_600))
        .spawn()
        .expect("the settings agree");
    let enqueue = async |key, number| {
        let put = queue.enqueue([key, number]).await;
        put.expect("it is open");
    };
    let busy = parked.min(BUSY);
    let mut leases: Vec<Lease<u64, Message>> = Vec::new();
    for key in 0..busy {
        enqueue(key, 0).await;
        leases.extend(queue.dequeue().await);
    }
    for number in 0..parked {
        enqueue(number % busy, number).await;
    }
    let mut clock = Clock::new(time);
    while clock.goes_on() {
        for free in 0..FREE {
            enqueue(BUSY + free, free).await;
        }
        let began = Instant::now();
        for _ in 0..FREE {
            if let Some(lease) = queue.dequeue().await {
                black_box(lease.message());
                let _ = lease.complete();
            }
        }
        clock.add(began.elapsed());
    }
    assert_eq!(queue.len() as u64, parked + busy, "only the free are done");
    clock.nanos()
}

async fn list(parked: u64, time: Duration) -> f64 {
    let queue = NaiveQueue::new();
    let busy = parked.min(BUSY);
    for key in 0..busy {
        queue.enqueue(key, [key, 0]);
        black_box(queue.dequeue().await);
    }
    for number in 0..parked {
        queue.enqueue(number % busy, [number % busy, number]);
    }
    let mut clock = Clock::new(time);
    while clock.goes_on() {
        for free in 0..FREE {
            queue.enqueue(BUSY + free, [BUSY + free, free]);
        }
        let began = Instant::now();
        for _ in 0..FREE {
            let (key, message) = queue.dequeue().await;
            black_box(message);
            queue.complete(&key);
        }
        clock.add(began.elapsed());
    }
    clock.nanos()
}

/// Collects the times of batches, until there is enough of them. The first one warms up.
struct Clock {
    most: Duration,
    spent: Duration,
    batches: Vec<Duration>,
}

impl Clock {
    fn new(most: Duration) -> Self {
        Self {
            most,
            spent: Duration::ZERO,
            batches: Vec::new(),
        }
    }

    fn goes_on(&self) -> bool {
        self.batches.len() < 2 || self.spent < self.most
    }

    fn add(&mut self, batch: Duration) {
        self.spent += batch;
        self.batches.push(batch);
    }

    /// Per message, in the batch in the middle.
    fn nanos(mut self) -> f64 {
        let batches = &mut self.batches[1..];
        batches.sort_unstable();
        batches[batches.len() / 2].as_nanos() as f64 / FREE as f64
    }
}
