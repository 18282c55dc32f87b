//! Instructions per message: the guard against a slower engine.
//!
//! Counted by callgrind on a current-thread runtime, with nothing left to chance: a hasher without
//! a seed, shards by number, a batch of the same size before the one that counts. Two runs differ
//! by a few instructions in a million, on a busy machine too, and by half a percent where retries
//! wait by the real clock. A bench fails as soon as it takes 5 % more than its figure here.
//!
//! `cargo xtask bench -- --bench instructions` runs it. Each bench handles 10,000 messages: without
//! the last four digits, what is printed is per message.
//!
//! The figures belong to rustc 1.95 on x86-64 Linux with glibc 2.36: another compiler, allocator or
//! `memcpy` counts differently. A change that makes a path cheaper lowers its figure here, or the
//! next one may lose it again unseen; one that makes it dearer raises it and says why.

#![allow(
    missing_docs,
    reason = "what the macros of gungraun make is public, and nothing here is for others"
)]

mod support {
    pub(crate) mod batch;
    pub(crate) mod hop;
}

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::time::Duration;

use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use keylane::discipline::{Coalesce, Sequence};
use keylane::error::BuildError;
use keylane::{Builder, Context, Dispatcher, Handler, Retry};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use support::batch::{Keys, Message, handle, handled, until_handled};
use support::hop::hop;

const MESSAGES: u64 = 10_000;

/// What each bench took per message when it was last looked at.
///
/// A rebuild may move the figures of `send` and of the floor by 2 %, because the compiler inlines
/// other parts of the channel.
mod figure {
    pub(super) const HOP: u64 = 504;
    pub(super) const SEND_ONE_KEY: u64 = 1_832;
    pub(super) const SEND_1K_KEYS: u64 = 1_832;
    pub(super) const SEND_DISTINCT: u64 = 1_823;
    pub(super) const SUBMIT: u64 = 2_581;
    pub(super) const SPAWN_AND_ONESHOT: u64 = 3_190;
    pub(super) const ROUND_TRIP: u64 = 6_090;
    pub(super) const RETRY_SET: u64 = 1_902;
    pub(super) const RETRY_ONCE: u64 = 9_979;
    pub(super) const COALESCE: u64 = 2_470;
    pub(super) const SEQUENCE: u64 = 4_535;
    // Was 2,901. That lanes which wait for a batch are counted is 60 of the difference.
    pub(super) const BATCH: u64 = 3_108;
    pub(super) const EXPIRY: u64 = 2_935;
}

/// In percent of its figure, what a bench may take.
const AT_MOST: u64 = 105;

/// What is measured, after a first batch.
struct Warm<T> {
    runtime: Runtime,
    intake: T,
    keys: Keys,
    /// Where the next batch begins.
    sent: u64,
}

type Lanes<E = Infallible> = Dispatcher<u64, Message, (), E>;

// The price of one channel and one loop, below which nothing can be.
#[library_benchmark]
#[bench::one_channel(args = (), setup = one_channel, config = at_most(figure::HOP))]
fn floor_of_send(mut warm: Warm<mpsc::Sender<Message>>) -> Warm<mpsc::Sender<Message>> {
    black_box(&mut warm).hop();
    warm
}

#[library_benchmark]
#[bench::one_key(args = (Keys::Cycle(1)), setup = plain, config = at_most(figure::SEND_ONE_KEY))]
#[bench::keys_1k(args = (Keys::Cycle(1_000)), setup = plain, config = at_most(figure::SEND_1K_KEYS))]
#[bench::distinct(args = (Keys::Distinct), setup = plain, config = at_most(figure::SEND_DISTINCT))]
#[bench::retry_set(args = (Keys::Cycle(1_000)), setup = retrying, config = at_most(figure::RETRY_SET))]
fn send(mut warm: Warm<Lanes>) -> Warm<Lanes> {
    black_box(&mut warm).send();
    warm
}

#[library_benchmark]
#[bench::keys_1k(args = (Keys::Cycle(1_000)), setup = plain, config = at_most(figure::SUBMIT))]
fn submit(mut warm: Warm<Lanes>) -> Warm<Lanes> {
    black_box(&mut warm).submit();
    warm
}

// One message at a time, and nothing else to do meanwhile.
#[library_benchmark]
#[bench::idle(args = (Keys::Cycle(1_000)), setup = plain, config = at_most(figure::ROUND_TRIP))]
fn round_trip(mut warm: Warm<Lanes>) -> Warm<Lanes> {
    black_box(&mut warm).round_trips();
    warm
}

// The price of one task and one answer.
#[library_benchmark]
#[bench::spawn_and_oneshot(args = (), setup = nothing, config = at_most(figure::SPAWN_AND_ONESHOT))]
fn floor_of_round_trip(mut warm: Warm<()>) -> Warm<()> {
    black_box(&mut warm).round_trips();
    warm
}

// Each message fails once, waits, and succeeds.
#[library_benchmark]
#[bench::once(args = (Keys::Distinct), setup = failing, config = at_most(figure::RETRY_ONCE))]
fn retry(mut warm: Warm<Lanes<fmt::Error>>) -> Warm<Lanes<fmt::Error>> {
    black_box(&mut warm).send();
    warm
}

// What a discipline costs over plain FIFO: over `send::distinct` for coalescing, over `send::keys_1k`
// for the others.
#[library_benchmark]
#[bench::coalesce(args = (), setup = coalescing, config = at_most(figure::COALESCE))]
#[bench::sequence(args = (), setup = sequencing, config = at_most(figure::SEQUENCE))]
#[bench::batch(args = (), setup = batching, config = at_most(figure::BATCH))]
#[bench::expiry(args = (), setup = expiring, config = at_most(figure::EXPIRY))]
fn discipline(mut warm: Warm<Lanes>) -> Warm<Lanes> {
    black_box(&mut warm).send();
    warm
}

library_benchmark_group!(
    name = messages,
    benchmarks = [
        floor_of_send,
        send,
        submit,
        floor_of_round_trip,
        round_trip,
        retry,
        discipline
    ]
);
main!(library_benchmark_groups = messages);

fn at_most(figure: u64) -> LibraryBenchmarkConfig {
    let limit = MESSAGES * figure * AT_MOST / 100;
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, limit)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

fn one_channel() -> Warm<mpsc::Sender<Message>> {
    let runtime = runtime();
    let intake = {
        let _inside = runtime.enter();
        hop(65_536)
    };
    let mut warm = Warm::new(runtime, intake, Keys::Distinct);
    warm.hop();
    warm
}

fn nothing() -> Warm<()> {
    let mut warm = Warm::new(runtime(), (), Keys::Distinct);
    warm.round_trips();
    warm
}

fn plain(keys: Keys) -> Warm<Lanes> {
    warm(keys, None, handle)
}

fn retrying(keys: Keys) -> Warm<Lanes> {
    warm(
        keys,
        Some(Retry::exponential(Duration::from_millis(50))),
        handle,
    )
}

fn failing(keys: Keys) -> Warm<Lanes<fmt::Error>> {
    warm(
        keys,
        Some(Retry::fixed(Duration::from_millis(1))),
        FailsOnce,
    )
}

/// Keys of the disciplines.
const KEYS: u64 = 1_000;

fn coalescing() -> Warm<Lanes> {
    // No key twice, so that every message comes to its handler.
    let lanes = || builder().coalesce(Coalesce::keep_latest()).spawn(handle);
    started(Keys::Distinct, lanes)
}

fn sequencing() -> Warm<Lanes> {
    let version = |message: &Message| message.number / KEYS;
    let sequence = Sequence::contiguous(version).from(0);
    started(Keys::Cycle(KEYS), || {
        builder().sequence(sequence).spawn(handle)
    })
}

fn batching() -> Warm<Lanes> {
    started(Keys::Cycle(KEYS), || {
        builder()
            .batch(64, Duration::ZERO)
            .spawn_batches(handle_all)
    })
}

fn expiring() -> Warm<Lanes> {
    let lanes = || {
        builder()
            .expire_after(Duration::from_secs(86_400))
            .spawn(handle)
    };
    started(Keys::Cycle(KEYS), lanes)
}

async fn handle_all(messages: Vec<Message>) -> Result<(), Infallible> {
    for message in messages {
        let Ok(()) = handle(message).await;
    }
    Ok(())
}

fn warm<H, A, E>(keys: Keys, retry: Option<Retry<E>>, handler: H) -> Warm<Lanes<E>>
where
    H: Handler<u64, Message, A, Output = (), Error = E>,
    A: 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    started(keys, || {
        let mut builder = builder();
        if let Some(retry) = retry {
            builder = builder.retry(retry);
        }
        builder.spawn(handler)
    })
}

fn builder<E>() -> Builder<
    u64,
    Message,
    E,
    impl Fn(&Message) -> Option<u64> + Send + Sync + 'static,
    BuildHasherDefault<DefaultHasher>,
>
where
    E: fmt::Debug + Send + Sync + 'static,
{
    Dispatcher::builder(|message: &Message| message.key)
        .hasher(BuildHasherDefault::default())
        .shards(8)
        // The watch would look at a time that depends on how busy the machine is.
        .stuck_after(Duration::from_secs(86_400))
}

/// A dispatcher that has handled its first messages.
fn started<E>(keys: Keys, spawn: impl FnOnce() -> Result<Lanes<E>, BuildError>) -> Warm<Lanes<E>>
where
    E: fmt::Debug + Send + Sync + 'static,
{
    let runtime = runtime();
    let intake = {
        let _inside = runtime.enter();
        spawn().expect("the settings fit")
    };
    let mut warm = Warm::new(runtime, intake, keys);
    warm.send();
    warm
}

/// A type, because a closure that wants to know its attempt pays for a context of its own.
struct FailsOnce;

impl Handler<u64, Message> for FailsOnce {
    type Output = ();
    type Error = fmt::Error;

    async fn handle(&self, context: &Context<u64>, message: Message) -> Result<(), fmt::Error> {
        if context.attempt() == 1 {
            return Err(fmt::Error);
        }
        let Ok(()) = handle(message).await;
        Ok(())
    }
}

impl<T> Warm<T> {
    fn new(runtime: Runtime, intake: T, keys: Keys) -> Self {
        Self {
            runtime,
            intake,
            keys,
            sent: 0,
        }
    }

    /// The messages of the next batch.
    fn batch(&mut self) -> impl Iterator<Item = Message> + use<T> {
        let (keys, first) = (self.keys, self.sent);
        self.sent += MESSAGES;
        (first..self.sent).map(move |n| Message::new(keys, n))
    }
}

impl Warm<mpsc::Sender<Message>> {
    fn hop(&mut self) {
        let batch = self.batch();
        self.runtime.block_on(async {
            let all = handled() + MESSAGES;
            for message in batch {
                self.intake.send(message).await.expect("the loop lives");
            }
            until_handled(all).await;
        });
    }
}

impl Warm<()> {
    fn round_trips(&mut self) {
        let batch = self.batch();
        self.runtime.block_on(async {
            for message in batch {
                let (reply, answer) = oneshot::channel();
                tokio::spawn(async move {
                    let answer = handle(message).await;
                    // The asking task is waiting for it.
                    let _ = reply.send(answer);
                });
                let Ok(()) = answer.await.expect("the task answers");
            }
        });
    }
}

impl<E> Warm<Lanes<E>>
where
    E: fmt::Debug + Send + Sync + 'static,
{
    fn send(&mut self) {
        let batch = self.batch();
        self.runtime.block_on(async {
            let all = handled() + MESSAGES;
            for message in batch {
                self.intake.send(message).await.expect("it is open");
            }
            until_handled(all).await;
        });
    }

    fn submit(&mut self) {
        let batch = self.batch();
        self.runtime.block_on(async {
            let mut receipts = Vec::with_capacity(MESSAGES as usize);
            for message in batch {
                receipts.push(self.intake.submit(message).await.expect("it is open"));
            }
            for receipt in receipts {
                receipt.await.expect("the handler does not fail");
            }
        });
    }

    fn round_trips(&mut self) {
        let batch = self.batch();
        self.runtime.block_on(async {
            for message in batch {
                let receipt = self.intake.submit(message).await.expect("it is open");
                receipt.await.expect("the handler does not fail");
            }
        });
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .build()
        .expect("a runtime without a thread")
}
