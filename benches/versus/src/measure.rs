//! One measurement of one contender: a fresh runtime, a warm-up, and the messages.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;

use crate::contender::Running;
use crate::contenders::Id;
use crate::keys::Keys;
use crate::latency::{Asked, Latency, histogram};
use crate::limits::{LANE, Limits};
use crate::probe;
use crate::traffic::{Errand, Pace, Stream};
use crate::work::Handler;

/// Handlers of the measurement that keeps many in flight.
pub const IN_FLIGHT: u64 = 100_000;

/// Messages sent to the blocked or hot key: more than the concurrency, and more than a lane holds.
const DISTURBANCE: u64 = 2_000;

/// No message handled for so long means that none will be.
const STALL: Duration = Duration::from_secs(1);

/// Between two looks at the counters once all is sent.
const LOOK: Duration = Duration::from_micros(50);

/// What came of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Messages handled while the clock ran.
    pub messages: u64,
    /// The clock, divided by them.
    pub ns_per_message: f64,
    /// Messages that began before an earlier one of their key, or while one was being handled.
    pub order_breaks: u64,
    /// Where latency is measured.
    pub latency: Option<Latency>,
    /// Why fewer messages were handled than sent.
    pub cut: Option<Cut>,
}

impl Sample {
    fn of(elapsed: Duration, messages: u64, cut: Option<Cut>) -> Self {
        Self {
            messages,
            ns_per_message: elapsed.as_nanos() as f64 / messages.max(1) as f64,
            order_breaks: 0,
            latency: None,
            cut,
        }
    }
}

/// Why a measurement ended early.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// It took too long; the rate is that of the messages handled until then.
    Slow,
    /// Nothing went on any more.
    Stalled,
}

/// What is sent besides, to keys that no other message has: those from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// To key 0, a backlog at once.
    Backlog,
    /// To so many keys, as fast as they take it.
    Endless(u64),
    /// To key 0, as often as to each of the others.
    Steady,
}

/// A closed loop: each producer sends as fast as it may.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    /// What each handler does.
    pub handler: Handler,
    /// Which key comes when.
    pub keys: Keys,
    /// Messages on the clock, over all producers.
    pub messages: u64,
    /// Tasks that send.
    pub producers: u64,
    /// The first key; those before are for what is sent besides.
    pub first: u64,
    /// What that is.
    pub beside: Beside,
    /// What the contender may use; the number of keys is that of this loop.
    pub limits: Limits,
    /// Whether all of it runs on one thread.
    pub current_thread: bool,
    /// When it is cut.
    pub limit: Duration,
}

impl ClosedLoop {
    /// With the usual limits, on two worker threads, from one producer, and nothing besides.
    pub fn new(handler: Handler, keys: Keys, messages: u64, limit: Duration) -> Self {
        Self {
            handler,
            keys,
            messages,
            producers: 1,
            first: 0,
            beside: Beside::Nothing,
            limits: Limits::usual(0),
            current_thread: false,
            limit,
        }
    }

    /// Measures this contender.
    pub fn measure(self, id: Id) -> Sample {
        let share = self.messages / self.producers;
        let warm_up = share / 16;
        let stream = Stream {
            keys: self.keys,
            producers: self.producers,
            share: warm_up + share,
            shift: self.first,
        };
        probe::reset(stream.slots(), 0);

        let limits = Limits {
            keys: stream.count(),
            ..self.limits
        };
        let runtime = if self.current_thread {
            current_thread_runtime()
        } else {
            runtime()
        };
        let bench = Bench::start_on(runtime, id, self.handler, limits);
        let all = warm_up * self.producers;
        let watch = Watch::new(self.limit, probe::handled);
        let (from, began, cut) = match bench.run(stream, 0..warm_up, all, watch) {
            (began, Some(cut)) => (0, began, Some(cut)),
            _ => {
                bench.disturb(self.beside);
                let to = warm_up + share;
                let target = to * self.producers;
                let watch = match self.beside {
                    // A message may wait behind the whole backlog of a hot key.
                    Beside::Endless(_) => Watch::patient(self.limit),
                    _ => Watch::new(self.limit, probe::handled),
                };
                let (began, cut) = bench.run(stream, warm_up..to, target, watch);
                (all, began, cut)
            }
        };
        let elapsed = began.elapsed();
        let messages = probe::handled().saturating_sub(from);
        let order_breaks = probe::breaks();
        bench.end();
        Sample {
            order_breaks,
            ..Sample::of(elapsed, messages, cut)
        }
    }
}

/// An open loop: a thread of its own sends each message at its time, and late ones at once.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// What each handler does.
    pub handler: Handler,
    /// Keys, from 1; key 0 is the disturbing one.
    pub keys: u64,
    /// Messages per second.
    pub rate: u64,
    /// Messages in all.
    pub messages: u64,
    /// What key 0 is sent.
    pub beside: Beside,
    /// Whether latency counts from the intended time, so that a sender held up does not hide it,
    /// and not from the moment in which the message is sent.
    pub intended: bool,
    /// How long the last messages may take.
    pub grace: Duration,
}

impl OpenLoop {
    /// Measures this contender.
    pub fn measure(self, id: Id) -> Sample {
        let keys = Keys::Cycle(self.keys);
        let stream = Stream {
            keys,
            producers: 1,
            share: self.messages,
            shift: 1,
        };
        probe::reset(stream.slots(), self.messages as usize);

        let bench = Bench::start(id, self.handler, Limits::usual(stream.count()));
        // The warm-up has sequence numbers of its own, in slots that are cleared after it.
        let watch = Watch::new(self.grace, probe::handled);
        let (_, cut) = bench.run(stream, 0..self.keys, self.keys, watch);
        if cut.is_none() {
            probe::reset(stream.slots(), 0);
            bench.disturb(self.beside);
            let mut generators = vec![self.generate(&bench, stream, self.period())];
            if self.beside == Beside::Steady {
                let steady = Stream {
                    keys: Keys::Cycle(1),
                    share: self.messages / self.keys,
                    shift: 0,
                    ..stream
                };
                generators.push(self.generate(&bench, steady, self.period() * self.keys));
            }
            // However long nothing is handled: in the end only the latencies count.
            let limit = Duration::from_nanos(self.messages * self.period()) + self.grace;
            bench.wait_for(Vec::new(), self.messages, Watch::patient(limit));
            probe::open_gate();
            for generator in generators {
                generator.join().expect("the generator does not panic");
            }
        }
        let sample = self.sample();
        bench.end();
        sample
    }

    fn generate(self, bench: &Bench, stream: Stream, period: u64) -> std::thread::JoinHandle<()> {
        let pace = Pace {
            began: probe::now_ns() + 1_000_000,
            period,
            intended: self.intended,
        };
        let range = 0..stream.share;
        let sending = bench.contender.send(Errand {
            stream,
            producer: 0,
            range,
            pace: Some(pace),
            endless: false,
        });
        let runtime = bench.runtime.handle().clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = sending => {}
                    // A sender may wait for ever.
                    () = probe::gate() => {}
                }
            });
        })
    }

    fn period(&self) -> u64 {
        1_000_000_000 / self.rate
    }

    fn sample(&self) -> Sample {
        let mut histogram = histogram();
        let mut handled = 0;
        let mut last = 0;
        for (i, ns) in probe::recorded(self.messages as usize).enumerate() {
            if let Some(ns) = ns {
                handled += 1;
                last = last.max(i as u64 * self.period() + ns);
                histogram.saturating_record(ns);
            }
        }
        let cut = (handled < self.messages).then_some(Cut::Stalled);
        Sample {
            order_breaks: probe::breaks(),
            latency: (handled > 0).then(|| Latency::of(&histogram)),
            ..Sample::of(Duration::from_nanos(last), handled, cut)
        }
    }
}

/// One question after the other, nothing else going on; they come from a task of the same runtime,
/// or from a thread outside of it.
pub fn round_trips(id: Id, questions: u64, inside: bool) -> Sample {
    probe::reset(0, 0);
    let runtime = runtime();
    let contender = runtime.block_on(id.start_answering(Limits::usual(Asked::KEYS)));
    let asking = contender.ask(questions);
    let asked = if inside {
        runtime
            .block_on(runtime.spawn(asking))
            .expect("asking does not panic")
    } else {
        runtime.block_on(asking)
    };
    end(runtime, contender);
    let latency = Some(Latency::of(&asked.histogram));
    Sample {
        latency,
        ..Sample::of(asked.elapsed, asked.answers, None)
    }
}

/// [`IN_FLIGHT`] handlers waiting at the same time, each with a key of its own.
pub fn in_flight(id: Id, limit: Duration) -> Sample {
    let room = (IN_FLIGHT as usize).next_power_of_two();
    let limits = Limits {
        concurrency: room,
        capacity: room,
        lane: LANE,
        keys: IN_FLIGHT,
    };
    let stream = Stream {
        keys: Keys::Distinct,
        producers: 1,
        share: IN_FLIGHT,
        shift: 0,
    };
    probe::reset(stream.slots(), 0);
    let bench = Bench::start(id, Handler::Wait, limits);
    let began = Instant::now();
    let producer = bench.produce(stream, 0, 0..IN_FLIGHT);
    let watch = Watch::new(limit, probe::waiting);
    let mut cut = bench.wait_for(vec![producer], IN_FLIGHT, watch);
    if cut.is_none() {
        probe::open_gate();
        cut = bench.wait_for(Vec::new(), IN_FLIGHT, Watch::new(limit, probe::handled));
    }
    let elapsed = began.elapsed();
    let messages = probe::handled();
    bench.end();
    Sample::of(elapsed, messages, cut)
}

/// A contender on its runtime.
pub struct Bench {
    /// Two worker threads; or none, and this thread runs the tasks while it waits.
    pub runtime: Runtime,
    contender: Box<dyn Running>,
}

impl Bench {
    /// Starts the contender on a fresh runtime.
    pub fn start(id: Id, handler: Handler, limits: Limits) -> Self {
        Self::start_on(runtime(), id, handler, limits)
    }

    fn start_on(runtime: Runtime, id: Id, handler: Handler, limits: Limits) -> Self {
        let contender = runtime.block_on(id.start(handler, limits));
        Self { runtime, contender }
    }

    /// Starts a producer, as a task of the runtime.
    pub fn produce(&self, stream: Stream, producer: u64, range: Range<u64>) -> JoinHandle<()> {
        self.runtime.spawn(self.contender.send(Errand {
            stream,
            producer,
            range,
            pace: None,
            endless: false,
        }))
    }

    /// Ends the contender and its runtime.
    pub fn end(self) {
        end(self.runtime, self.contender);
    }

    /// Runs all producers over `range`; says when they began, and whether it was cut.
    fn run(
        &self,
        stream: Stream,
        range: Range<u64>,
        target: u64,
        watch: Watch,
    ) -> (Instant, Option<Cut>) {
        let began = Instant::now();
        let producers = (0..stream.producers)
            .map(|producer| self.produce(stream, producer, range.clone()))
            .collect();
        (began, self.wait_for(producers, target, watch))
    }

    /// Sends the disturbing messages from a sender of their own: where a key has a limit of its
    /// own, only this sender waits for it.
    fn disturb(&self, beside: Beside) {
        let (keys, messages) = match beside {
            Beside::Backlog => (1, DISTURBANCE),
            // More than anyone handles in one measurement.
            Beside::Endless(keys) => (keys, 1 << 30),
            // An open loop sends those itself.
            Beside::Nothing | Beside::Steady => return,
        };
        let stream = Stream {
            keys: Keys::Cycle(keys),
            producers: 1,
            share: messages,
            shift: 0,
        };
        self.runtime.spawn(self.contender.send(Errand {
            stream,
            producer: 0,
            range: 0..messages,
            pace: None,
            endless: matches!(beside, Beside::Endless(_)),
        }));
        std::thread::sleep(Duration::from_millis(20));
    }

    fn wait_for(
        &self,
        producers: Vec<JoinHandle<()>>,
        target: u64,
        mut watch: Watch,
    ) -> Option<Cut> {
        // While the producers are busy this thread sleeps: there are two cores, and it needs none.
        let cut = self.runtime.block_on(async {
            let mut sent = std::pin::pin!(join_all(producers));
            loop {
                tokio::select! {
                    _ = &mut sent => return None,
                    () = tokio::time::sleep(Duration::from_millis(20)) => {}
                }
                if let Some(cut) = watch.look() {
                    return Some(cut);
                }
            }
        });
        if cut.is_some() {
            return cut;
        }
        if self.runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
            // This thread is the one that has to run the tasks.
            return self.runtime.block_on(async {
                while (watch.progress)() < target {
                    tokio::task::yield_now().await;
                    if let Some(cut) = watch.look() {
                        return Some(cut);
                    }
                }
                None
            });
        }
        while (watch.progress)() < target {
            std::thread::sleep(LOOK);
            if let Some(cut) = watch.look() {
                return Some(cut);
            }
        }
        None
    }
}

/// Looks whether a measurement still goes on.
struct Watch {
    began: Instant,
    limit: Duration,
    stall: Duration,
    progress: fn() -> u64,
    seen: u64,
    moved: Instant,
}

impl Watch {
    fn new(limit: Duration, progress: fn() -> u64) -> Self {
        let began = Instant::now();
        let stall = STALL.min(limit / 2);
        Self {
            began,
            limit,
            stall,
            progress,
            seen: progress(),
            moved: began,
        }
    }

    /// Never calls it stalled before the limit.
    fn patient(limit: Duration) -> Self {
        Self {
            stall: limit,
            ..Self::new(limit, probe::handled)
        }
    }

    fn look(&mut self) -> Option<Cut> {
        let now = Instant::now();
        let seen = (self.progress)();
        if seen != self.seen {
            self.seen = seen;
            self.moved = now;
        }
        if now - self.moved > self.stall {
            return Some(Cut::Stalled);
        }
        (now - self.began > self.limit).then_some(Cut::Slow)
    }
}

/// A runtime of two worker threads.
pub fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("two threads can be started")
}

/// A runtime on the thread that asks for it.
fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without threads can be started")
}

/// The runtime goes first, and with it every sender that still waits; then the last handle.
fn end<C>(runtime: Runtime, handle: C) {
    probe::open_gate();
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(handle);
}
