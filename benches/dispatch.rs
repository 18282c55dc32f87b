//! The hot paths by the clock: nanoseconds per message, and how many floors that is.
//!
//! The same paths as in `cargo xtask versus`, without the rivals and small enough to run before and
//! after a change, each on two workers and on a current-thread runtime. Criterion compares with the
//! run before. The table at the end compares with the floor, what the same messages cost with one
//! hop and no keys, or with a task each: it is measured between the samples, so a machine that is
//! busier today than yesterday is so for both.
//!
//! On two workers the sender and the runners work at the same time, and the slower one is what the
//! clock sees. With less than two cores to itself the clock sees their sum, as it does on a
//! current-thread runtime, and the ratio goes from one to the other.
//!
//! `cargo xtask bench -- --bench dispatch` runs it in about a minute and a half; with
//! `-- "round trip"` behind that, only a part.

mod support {
    pub(crate) mod batch;
    pub(crate) mod hop;
    pub(crate) mod path;
    pub(crate) mod ratios;
}

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use keylane::error::BuildError;
use keylane::{Dispatcher, Overflow, Retry};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use support::batch::{Keys, Message, handle};
use support::hop::hop;
use support::path::{
    Flood, Lanes, Path, RoundTrips, Spawns, SpawnsAndAnswers, handle_pending_once,
};
use support::ratios::{Ratios, Sample};

const CAPACITY: usize = 65_536;
const CONCURRENCY: usize = 1_024;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1_200))
        .nresamples(2_000)
        .configure_from_args();
    let mut ratios = Ratios::default();
    let two_workers = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    let current_thread = Builder::new_current_thread().enable_time().build();
    for (on, runtime) in [
        ("two-workers", two_workers),
        ("current-thread", current_thread),
    ] {
        let runtime = runtime.expect("two threads can be started");
        // For what is started here and not in a task.
        let _inside = runtime.enter();
        let mut benches = Benches {
            criterion: &mut criterion,
            ratios: &mut ratios,
            on,
            runtime: &runtime,
        };
        benches.floods();
        benches.floods_of_tasks();
        benches.round_trips();
    }
    criterion.final_summary();
    print!("{ratios}");
}

/// The benches of one runtime.
struct Benches<'a> {
    criterion: &'a mut Criterion,
    ratios: &'a mut Ratios,
    /// The runtime's name.
    on: &'static str,
    runtime: &'a Runtime,
}

impl Benches<'_> {
    /// A handler that does nothing: all that is left is the way to it and back.
    fn floods(&mut self) {
        let floor = Arc::new(Flood::new(hop(CAPACITY), Keys::Distinct));
        self.bench("floor: one hop", &floor, &floor);

        for (name, with_foldhash, keys) in [
            ("send 1 key", "send 1 key, foldhash", Keys::Cycle(1)),
            ("send 1k keys", "send 1k keys, foldhash", Keys::Cycle(1_000)),
            (
                "send 100k keys",
                "send 100k keys, foldhash",
                Keys::Cycle(100_000),
            ),
            ("send distinct", "send distinct, foldhash", Keys::Distinct),
        ] {
            self.flood(
                name,
                keys,
                builder(RandomState::new()).spawn(handle),
                &floor,
            );
            let hasher = foldhash::fast::RandomState::default();
            self.flood(with_foldhash, keys, builder(hasher).spawn(handle), &floor);
        }

        // What settings cost while nothing fails and no lane is full, and what a full lane costs.
        let keys = Keys::Cycle(1_000);
        let set = || builder(RandomState::new());
        let retry = Retry::exponential(Duration::from_millis(50)).max_attempts(5);
        self.flood("retry set", keys, set().retry(retry).spawn(handle), &floor);
        for (name, capacity) in [
            ("lanes never full", CAPACITY),
            ("lanes of 8, often full", 8),
        ] {
            let lanes = set().lane_capacity(capacity, Overflow::Wait).spawn(handle);
            self.flood(name, keys, lanes, &floor);
        }
    }

    /// A handler that is pending once, so that each message needs a task.
    fn floods_of_tasks(&mut self) {
        let keys = Keys::Cycle(1_000);
        let spawns = Spawns(Arc::new(Semaphore::new(CONCURRENCY)));
        let floor = Arc::new(Flood::new(spawns, keys));
        self.bench("floor: spawn, pending once", &floor, &floor);

        let lanes = builder(RandomState::new()).spawn(handle_pending_once);
        self.flood("send 1k keys, pending once", keys, lanes, &floor);
    }

    /// One message at a time, and nothing else to do meanwhile.
    fn round_trips(&mut self) {
        let floor = Arc::new(RoundTrips(SpawnsAndAnswers));
        self.bench("floor: spawn and oneshot", &floor, &floor);

        let lanes = builder(RandomState::new()).spawn(handle);
        let path = Arc::new(RoundTrips(lanes.expect("the settings fit")));
        self.bench("submit, round trip when idle", &path, &floor);
    }

    fn flood(
        &mut self,
        name: &'static str,
        keys: Keys,
        lanes: Result<Lanes, BuildError>,
        floor: &Arc<impl Path>,
    ) {
        let path = Arc::new(Flood::new(lanes.expect("the settings fit"), keys));
        self.bench(name, &path, floor);
    }

    fn bench<P: Path, F: Path>(&mut self, name: &'static str, path: &Arc<P>, floor: &Arc<F>) {
        let Self {
            criterion,
            ratios,
            on,
            runtime,
        } = self;
        let mut group = criterion.benchmark_group(*on);
        group.throughput(Throughput::Elements(P::MESSAGES));
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let took = walk(runtime, path, rounds);
                // A look at the floor, and no more: the time is the path's.
                let beside = rounds.div_ceil(4);
                let sample = Sample {
                    path: nanos::<P>(took, rounds),
                    floor: nanos::<F>(walk(runtime, floor, beside), beside),
                };
                ratios.record(on, name, sample);
                took
            });
        });
        group.finish();
    }
}

fn builder<S>(
    hasher: S,
) -> keylane::Builder<
    u64,
    Message,
    Infallible,
    impl Fn(&Message) -> Option<u64> + Send + Sync + 'static,
    S,
>
where
    S: BuildHasher + Send + Sync + 'static,
{
    Dispatcher::builder(|message: &Message| message.key)
        .hasher(hasher)
        .capacity(CAPACITY)
        .concurrency(CONCURRENCY)
}

/// The sender is a task like the others, and no third thread beside two workers.
fn walk<P: Path>(runtime: &Runtime, path: &Arc<P>, rounds: u64) -> Duration {
    let path = Arc::clone(path);
    let sender = runtime.spawn(async move { path.walk(rounds).await });
    runtime.block_on(sender).expect("a sender does not panic")
}

/// Nanoseconds per message.
fn nanos<P: Path>(took: Duration, rounds: u64) -> f64 {
    took.as_nanos() as f64 / (rounds * P::MESSAGES) as f64
}
