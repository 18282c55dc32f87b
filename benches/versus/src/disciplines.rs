//! What each discipline costs over plain FIFO: keylane beside itself, with one setting changed.

use std::convert::Infallible;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use keylane::discipline::{Coalesce, Sequence};
use keylane::watching::Stats;
use keylane::{Adaptive, Builder, Dispatcher, Overflow, Rate};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::limits::{CAPACITY, CONCURRENCY, LANE};
use crate::measure;
use crate::message::Tick;
use crate::probe;

/// Keys that take turns.
pub const KEYS: [u64; 3] = [1, 1_000, 100_000];

/// Above this many keys the warm-up uses only so many.
const WARM: u64 = 1_000;

/// Messages of a key until the order in which they come repeats.
const CYCLE: u64 = 4;

/// When a measurement is cut.
const LIMIT: Duration = Duration::from_secs(10);

/// Between two looks whether all is settled.
const LOOK: Duration = Duration::from_micros(50);

/// A key that sends nothing.
const SILENT: u64 = u64::MAX;

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Nothing: the control of all others.
    Fifo,
    /// `Coalesce::keep_first`.
    KeepFirst,
    /// `Coalesce::keep_latest`.
    KeepLatest,
    /// `Coalesce::merge`.
    Merge,
    /// `Coalesce::keep_latest` with `share_answers`.
    ShareAnswers,
    /// `Sequence::contiguous`, all in order.
    Contiguous,
    /// `Sequence::contiguous`, of each four messages of a key the last two swapped.
    Swapped,
    /// `Sequence::monotonic`, all in order.
    Monotonic,
    /// `batch(64, 0)`.
    Batch,
    /// `expire_after` an hour.
    Expiry,
    /// `rate_per_key`, far above the load.
    RatePerKey,
    /// `rate`, far above the load.
    Rate,
    /// `priority` with three classes, in turns by key.
    Priority,
    /// `adaptive_concurrency`.
    Adaptive,
    /// `hash_lanes` with 64 lanes.
    HashLanes,
    /// One subscriber of `events`, that reads.
    Events,
    /// Another key is paused.
    Paused,
}

impl Arm {
    /// In the order of the table.
    pub const ALL: [Self; 17] = [
        Self::Fifo,
        Self::KeepFirst,
        Self::KeepLatest,
        Self::Merge,
        Self::ShareAnswers,
        Self::Contiguous,
        Self::Swapped,
        Self::Monotonic,
        Self::Batch,
        Self::Expiry,
        Self::RatePerKey,
        Self::Rate,
        Self::Priority,
        Self::Adaptive,
        Self::HashLanes,
        Self::Events,
        Self::Paused,
    ];

    /// As the table and the JSON file spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "plain FIFO",
            Self::KeepFirst => "coalesce: keep_first",
            Self::KeepLatest => "coalesce: keep_latest",
            Self::Merge => "coalesce: merge",
            Self::ShareAnswers => "coalesce: keep_latest, share_answers",
            Self::Contiguous => "sequence: contiguous",
            Self::Swapped => "sequence: contiguous, every second pair swapped",
            Self::Monotonic => "sequence: monotonic",
            Self::Batch => "batch(64, 0)",
            Self::Expiry => "expire_after(1 h)",
            Self::RatePerKey => "rate_per_key, never reached",
            Self::Rate => "rate, never reached",
            Self::Priority => "priority, 3 classes",
            Self::Adaptive => "adaptive_concurrency",
            Self::HashLanes => "hash_lanes(64)",
            Self::Events => "events, one subscriber",
            Self::Paused => "another key is paused",
        }
    }

    /// The place of the i-th message of its key among them, from 0.
    fn place(self, round: u64) -> u64 {
        match self {
            Self::Swapped if round % CYCLE >= 2 => round ^ 1,
            _ => round,
        }
    }
}

/// One setting at one number of keys.
#[derive(Clone, Debug, Serialize)]
pub struct Discipline {
    /// What is set.
    pub name: &'static str,
    /// Keys that take turns.
    pub keys: u64,
    /// Nanoseconds per message *sent*: the median of the rounds.
    pub ns_per_message: f64,
    /// The median of the rounds' ratios, each to the plain FIFO right before it.
    pub ratio_to_fifo: f64,
    /// The part of the messages that a handler was given.
    pub handled: f64,
    /// Messages that a handler was given before an earlier one of their key, or beside one.
    pub order_breaks: u64,
    /// Whether a round was cut short.
    pub cut: bool,
}

/// One measurement.
struct Sample {
    ns: f64,
    handled: f64,
    breaks: u64,
    cut: bool,
}

/// Measures these at so many keys. Right before each there is plain FIFO, so that what disturbs the
/// machine disturbs both.
pub fn measure(keys: u64, arms: &[Arm], quick: bool, rounds: usize) -> Vec<Discipline> {
    let mut samples: Vec<Vec<(Sample, f64)>> = arms.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let at = (turn + round) % arms.len();
            let control = run(Arm::Fifo, keys, quick);
            let sample = run(arms[at], keys, quick);
            let ratio = sample.ns / control.ns;
            samples[at].push((sample, ratio));
        }
    }
    let measured = arms.iter().zip(samples).map(|(arm, samples)| Discipline {
        name: arm.name(),
        keys,
        ns_per_message: median(samples.iter().map(|(sample, _)| sample.ns)),
        ratio_to_fifo: median(samples.iter().map(|(_, ratio)| *ratio)),
        handled: median(samples.iter().map(|(sample, _)| sample.handled)),
        order_breaks: samples.iter().map(|(sample, _)| sample.breaks).sum(),
        cut: samples.iter().any(|(sample, _)| sample.cut),
    });
    measured.collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Messages on the clock: whole cycles of every key.
fn messages(keys: u64, quick: bool) -> u64 {
    let about = if quick { 100_000 } else { 1_000_000 };
    let cycle = keys * CYCLE;
    about.max(cycle) / cycle * cycle
}

fn run(arm: Arm, keys: u64, quick: bool) -> Sample {
    let messages = messages(keys, quick);
    let load = Load {
        arm,
        keys,
        warm: keys.min(WARM),
        messages,
    };
    probe::reset((load.keys + load.warm) as usize, 0);
    let runtime = measure::runtime();
    let sample = runtime.block_on(async {
        match arm {
            Arm::HashLanes => {
                let lanes = NonZeroUsize::new(64).expect("64 is not zero");
                let builder = Dispatcher::hash_lanes(lanes, |tick: &Tick| tick.key);
                let lanes = builder_of(builder).spawn(handle);
                load.measure(lanes.expect("the settings agree")).await
            }
            Arm::Batch => {
                let builder = builder_of(Dispatcher::builder(|tick: &Tick| tick.key));
                let lanes = builder.batch(64, Duration::ZERO).spawn_batches(handle_all);
                load.measure(lanes.expect("the settings agree")).await
            }
            _ => {
                let builder = builder_of(Dispatcher::builder(|tick: &Tick| tick.key));
                let lanes = set(arm, builder).spawn(handle);
                let lanes = lanes.expect("the settings agree");
                if arm == Arm::Paused {
                    lanes.lane(&SILENT).pause();
                }
                if arm == Arm::Events {
                    let mut events = lanes.events();
                    tokio::spawn(async move { while events.recv().await.is_some() {} });
                }
                load.measure(lanes).await
            }
        }
    });
    runtime.shutdown_timeout(LIMIT);
    sample
}

/// As the contenders have it.
fn builder_of<K, F>(builder: Builder<K, Tick, Infallible, F>) -> Builder<K, Tick, Infallible, F>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    F: Fn(&Tick) -> Option<K> + Send + Sync + 'static,
{
    builder
        .concurrency(CONCURRENCY)
        .capacity(CAPACITY)
        .lane_capacity(LANE, Overflow::Wait)
}

fn set<F>(arm: Arm, builder: Builder<u64, Tick, Infallible, F>) -> Builder<u64, Tick, Infallible, F>
where
    F: Fn(&Tick) -> Option<u64> + Send + Sync + 'static,
{
    let version = |tick: &Tick| u64::from(tick.seq);
    // More than is sent in a measurement, all of it at once.
    let wide = Rate::per_second(100_000_000).burst(100_000_000);
    match arm {
        Arm::KeepFirst => builder.coalesce(Coalesce::keep_first()),
        Arm::KeepLatest => builder.coalesce(Coalesce::keep_latest()),
        Arm::Merge => builder.coalesce(Coalesce::merge(|_: &Tick, new: &Tick| new.clone())),
        Arm::ShareAnswers => builder
            .coalesce(Coalesce::keep_latest())
            .share_answers::<()>(),
        Arm::Contiguous | Arm::Swapped => builder.sequence(Sequence::contiguous(version).from(1)),
        Arm::Monotonic => builder.sequence(Sequence::monotonic(version)),
        Arm::Expiry => builder.expire_after(Duration::from_secs(3_600)),
        Arm::RatePerKey => builder.rate_per_key(wide),
        Arm::Rate => builder.rate(wide),
        Arm::Priority => builder.priority(3, |tick| (tick.key % 3) as u8),
        Arm::Adaptive => {
            builder.adaptive_concurrency(Adaptive::between(1, CONCURRENCY).initial(CONCURRENCY))
        }
        Arm::Fifo | Arm::Batch | Arm::HashLanes | Arm::Events | Arm::Paused => builder,
    }
}

async fn handle(tick: Tick) -> Result<(), Infallible> {
    probe::start(&tick);
    probe::end(&tick);
    Ok(())
}

async fn handle_all(ticks: Vec<Tick>) -> Result<(), Infallible> {
    for tick in &ticks {
        probe::start(tick);
        probe::end(tick);
    }
    Ok(())
}

/// What one producer sends, and in which order.
#[derive(Clone, Copy)]
struct Load {
    arm: Arm,
    keys: u64,
    /// Keys of the warm-up, which come behind the others.
    warm: u64,
    messages: u64,
}

impl Load {
    /// From the first send after the warm-up until the last message has settled.
    async fn measure<K>(self, lanes: Dispatcher<K, Tick, (), Infallible>) -> Sample
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let cycle = self.warm * CYCLE;
        let warm_up = (self.messages / 16).max(cycle) / cycle * cycle;
        let warmed = self.send(&lanes, (self.keys, self.warm), warm_up);
        let mut cut = settled(&lanes, warmed, warm_up).await;
        let before = probe::handled();
        let began = Instant::now();
        if !cut {
            let sending = self.send(&lanes, (0, self.keys), self.messages);
            cut = settled(&lanes, sending, warm_up + self.messages).await;
        }
        let messages = self.messages as f64;
        Sample {
            ns: began.elapsed().as_nanos() as f64 / messages,
            handled: (probe::handled() - before) as f64 / messages,
            breaks: probe::breaks(),
            cut,
        }
    }

    /// Starts a producer that sends to so many keys, from a first one on, in turns.
    fn send<K>(
        self,
        lanes: &Dispatcher<K, Tick, (), Infallible>,
        (first, keys): (u64, u64),
        messages: u64,
    ) -> JoinHandle<()>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let lanes = lanes.clone();
        tokio::spawn(async move {
            for round in 0..messages / keys {
                let place = self.arm.place(round);
                for key in first..first + keys {
                    let tick = Tick {
                        key,
                        due: 0,
                        slot: key as u32,
                        seq: place as u32 + 1,
                    };
                    // It is closed only when the runtime is gone.
                    let _ = lanes.send(tick).await;
                }
            }
        })
    }
}

/// Waits until all is sent and has settled. True: it took too long.
async fn settled<K>(
    lanes: &Dispatcher<K, Tick, (), Infallible>,
    sending: JoinHandle<()>,
    target: u64,
) -> bool
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let deadline = Instant::now() + LIMIT;
    if tokio::time::timeout(LIMIT, sending).await.is_err() {
        return true;
    }
    loop {
        let Stats {
            done, coalesced, ..
        } = lanes.stats();
        if done + coalesced == target {
            return false;
        }
        if Instant::now() > deadline {
            return true;
        }
        // This thread is none of the workers.
        std::thread::sleep(LOOK);
    }
}
