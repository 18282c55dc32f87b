//! A source in memory, against `send` and `submit` of the same messages.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use keylane::consume::IntakeSettings;
use keylane::source::{Deliveries, Delivery, Features, Received, Settlement, Source, SourceError};
use keylane::{Dispatcher, OnExhausted};
use serde::Serialize;

use crate::measure;

/// Keys that the messages are spread over.
pub const KEYS: [u64; 3] = [1, 1_000, 100_000];

/// The ways in which messages come in.
pub const WAYS: [&str; 3] = ["send", "source", "submit"];

/// Messages that a source hands over at once.
const BATCH: usize = 256;

/// Receipts that wait at the same time.
const RECEIPTS: usize = 8_192;

/// 24 bytes.
type Message = [u64; 3];

/// One way at one number of keys.
#[derive(Clone, Debug, Serialize)]
pub struct Fed {
    /// Which way.
    pub way: &'static str,
    /// Keys.
    pub keys: u64,
    /// Nanoseconds of a message, from the first that comes in to the last that has settled: the
    /// median of the rounds.
    pub nanos: f64,
    /// The median of the rounds' ratios to `send`.
    pub ratio: f64,
}

/// Rounds for each round of the other measurements: the ways are closer to each other than the
/// rounds of one.
const ROUNDS: usize = 3;

/// Measures all ways, in turns.
pub fn measure(quick: bool, rounds: usize) -> Vec<Fed> {
    let messages = if quick { 200_000 } else { 1_000_000 };
    let mut fed = Vec::new();
    for keys in KEYS {
        let mut samples = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds * ROUNDS {
            samples[0].push(run(send(keys, messages)));
            samples[1].push(run(source(keys, messages)));
            samples[2].push(run(submit(keys, messages)));
        }
        for (way, nanos) in WAYS.into_iter().zip(&samples) {
            let ratios = nanos.iter().zip(&samples[0]);
            let ratios = ratios.map(|(nanos, send)| nanos / send).collect();
            fed.push(Fed {
                way,
                keys,
                nanos: median(nanos.clone()),
                ratio: median(ratios),
            });
        }
    }
    fed
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// On a worker of a fresh runtime, as everything here.
fn run(measurement: impl Future<Output = f64> + Send + 'static) -> f64 {
    let runtime = measure::runtime();
    let nanos = runtime.block_on(runtime.spawn(measurement));
    nanos.expect("no measurement panics")
}

type Lanes = Dispatcher<u64, Message, (), Infallible>;

/// With a named end of messages that fail, which a source needs: each attempt gets a copy.
fn lanes() -> Lanes {
    let started = Dispatcher::builder(|message: &Message| message[0])
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: Message| async { Ok::<(), Infallible>(()) });
    started.expect("the settings agree")
}

fn message(number: u64, keys: u64) -> Message {
    [number % keys, number, 0]
}

fn per_message(took: Duration, messages: u64) -> f64 {
    took.as_nanos() as f64 / messages as f64
}

async fn send(keys: u64, messages: u64) -> f64 {
    let lanes = lanes();
    let began = Instant::now();
    for number in 0..messages {
        let sent = lanes.send(message(number, keys)).await;
        sent.expect("it is open");
    }
    let report = lanes.drain().await;
    let took = began.elapsed();
    assert_eq!(report.done, messages);
    per_message(took, messages)
}

async fn submit(keys: u64, messages: u64) -> f64 {
    let lanes = lanes();
    let mut receipts = std::collections::VecDeque::with_capacity(RECEIPTS);
    let began = Instant::now();
    for number in 0..messages {
        if receipts.len() == RECEIPTS
            && let Some(receipt) = receipts.pop_front()
        {
            answered(receipt).await;
        }
        let submitted = lanes.submit(message(number, keys)).await;
        receipts.push_back(submitted.expect("it is open"));
    }
    for receipt in receipts {
        answered(receipt).await;
    }
    let took = began.elapsed();
    lanes.drain().await;
    per_message(took, messages)
}

async fn answered(receipt: keylane::Receipt<Message, (), Infallible>) {
    receipt.await.expect("no handler fails");
}

async fn source(keys: u64, messages: u64) -> f64 {
    let lanes = lanes();
    let began = Instant::now();
    let settings = IntakeSettings::new().held(RECEIPTS);
    let numbers = Numbers {
        next: 0,
        end: messages,
        keys,
        settled: 0,
    };
    let intake = lanes.consume_with(numbers, settings).expect("it fits");
    let report = intake.ended().await;
    let took = began.elapsed();
    assert_eq!(report.acked, messages);
    lanes.drain().await;
    per_message(took, messages)
}

/// Hands numbers over, and counts what is settled.
struct Numbers {
    next: u64,
    end: u64,
    keys: u64,
    settled: u64,
}

impl Source for Numbers {
    type Message = Message;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new().finite()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<Message, u64>,
    ) -> Result<Received<u64>, SourceError> {
        if self.next == self.end {
            return Ok(Received::End);
        }
        if into.room() == 0 {
            std::future::pending::<()>().await;
        }
        let most = into.room().min(BATCH) as u64;
        for _ in 0..most.min(self.end - self.next) {
            let number = self.next;
            into.push(Delivery::new(message(number, self.keys), number));
            self.next += 1;
        }
        Ok(Received::Messages)
    }

    async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
        self.settled += settled.len() as u64;
        Ok(())
    }
}
