//! Bytes and allocations of one contender, as the counting allocator of `versus-memory` sees them.
//!
//! Bytes are those asked for; what the allocator adds for itself comes on top, for every contender.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::allocator::{allocations, live_bytes_at_rest};
use crate::contenders::Id;
use crate::keys::Keys;
use crate::limits::{CONCURRENCY, LANE, Limits};
use crate::measure::{self, Bench};
use crate::message::Tick;
use crate::probe;
use crate::traffic::Stream;
use crate::work::{Handler, Wait, WaitWide, Work};

/// Bytes of the message itself.
pub const MESSAGE_BYTES: usize = size_of::<Tick>();

/// Bytes of a key.
pub const KEY_BYTES: usize = size_of::<u64>();

/// The name under which a bare spawned task is counted: no semaphore, nothing.
pub const BARE_TASK: &str = "bare-task";

/// Keys and handlers that are counted.
fn many(id: Id) -> u64 {
    // It looks at every group when a handler is done.
    if id == Id::FutureQueue {
        5_000
    } else {
        100_000
    }
}

/// Enough for anything here; what takes longer is not worth its row.
const LIMIT: Duration = Duration::from_secs(30);

/// What one contender takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Footprint {
    /// Which.
    pub contender: String,
    /// Bytes per message waiting behind a handler of its key, for several numbers of them.
    pub parked: Vec<Parked>,
    /// Bytes per key with one message waiting and none being handled, the message not counted.
    pub live_lane_bytes: Option<f64>,
    /// Bytes per handler in flight.
    pub in_flight_bytes: Option<f64>,
    /// The same, where the handler's future is 1 KiB larger.
    pub in_flight_wide_bytes: Option<f64>,
    /// Bytes left for a key that has nothing to do any more.
    pub idle_key_bytes: Option<f64>,
    /// Allocations per message once warm.
    pub allocations: Vec<Allocations>,
}

/// Bytes per waiting message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Parked {
    /// How many waited.
    pub messages: u64,
    /// Bytes of each.
    pub bytes: f64,
}

/// Allocations per message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Allocations {
    /// How the keys were spread.
    pub keys: String,
    /// Allocations and reallocations per message.
    pub per_message: f64,
}

impl Footprint {
    /// Counts all there is to count of this contender.
    pub fn of(id: Id, quick: bool) -> Self {
        let mut print = Self {
            contender: id.name().to_owned(),
            ..Self::default()
        };
        if id != Id::Spawn && !id.is_serial() {
            let counts: &[u64] = if quick {
                &[100_000]
            } else {
                &[1_000, 65_536, 100_000, 131_073, 1_000_000]
            };
            print.parked = counts
                .iter()
                .filter_map(|messages| {
                    let bytes = parked(id, *messages)?;
                    Some(Parked {
                        messages: *messages,
                        bytes,
                    })
                })
                .collect();
        }
        if id.is_keylane() || matches!(id, Id::Grommet | Id::FutureQueue) {
            print.live_lane_bytes = live_lane(id, many(id));
        }
        if !id.is_serial() && !id.has_workers() {
            print.in_flight_bytes = in_flight(id, Handler::Wait, many(id));
            print.in_flight_wide_bytes = in_flight(id, Handler::WaitWide, many(id));
        }
        if id != Id::FutureQueue {
            print.idle_key_bytes = idle_key(id, many(id));
        }
        for keys in [Keys::Cycle(1), Keys::Cycle(1_000), Keys::Distinct] {
            // These allocate for a key, not for a message.
            let new_keys_cost = id.keeps_keys() || id == Id::FutureQueue;
            if keys == Keys::Distinct && new_keys_cost {
                continue;
            }
            let messages = if quick { 200_000 } else { 1_000_000 };
            if let Some(per_message) = allocations_per_message(id, keys, messages) {
                print.allocations.push(Allocations {
                    keys: keys.label(),
                    per_message,
                });
            }
        }
        print
    }

    /// Counts a spawned task with nothing around it.
    pub fn of_bare_task() -> Self {
        Self {
            contender: BARE_TASK.to_owned(),
            in_flight_bytes: Some(bare_task::<Wait>()),
            in_flight_wide_bytes: Some(bare_task::<WaitWide>()),
            ..Self::default()
        }
    }

    /// Allocations per message with keys spread like this.
    pub fn allocations(&self, keys: &str) -> Option<f64> {
        let spread = self.allocations.iter().find(|spread| spread.keys == keys)?;
        Some(spread.per_message)
    }

    /// Bytes per waiting message, at the number of them where it is most.
    pub fn worst_parked(&self) -> Option<f64> {
        self.parked
            .iter()
            .map(|parked| parked.bytes)
            .reduce(f64::max)
    }
}

/// How much more capacity a contender needs so that one key may use all of it.
fn room(id: Id) -> usize {
    match id {
        Id::StaticHash => 64,
        Id::Ractor => 8,
        Id::KeylaneSubmit => 4,
        Id::Grommet => 2,
        _ => 1,
    }
}

/// Messages parked behind a handler of their key.
fn parked(id: Id, messages: u64) -> Option<f64> {
    let before = begin();
    let most = messages as usize + 2;
    let bench = Bench::start(
        id,
        Handler::Wait,
        Limits {
            concurrency: CONCURRENCY,
            capacity: most * room(id),
            lane: most,
            keys: 1,
        },
    );
    let stream = Stream {
        keys: Keys::Cycle(1),
        producers: 1,
        share: messages + 1,
        shift: 0,
    };
    let sent = send(&bench, stream, 0..1)
        && reached(probe::waiting, 1)
        && send(&bench, stream, 1..messages + 1);
    let bytes = live_bytes_at_rest() - before;
    bench.end();
    sent.then(|| bytes as f64 / messages as f64)
}

/// Keys with one message each, none of them being handled: key 0 has the only handler.
fn live_lane(id: Id, keys: u64) -> Option<f64> {
    let before = begin();
    let capacity = 4 * keys as usize + 8;
    let bench = Bench::start(
        id,
        Handler::Wait,
        Limits {
            concurrency: 1,
            capacity,
            lane: LANE,
            keys: keys + 1,
        },
    );
    let stream = Stream {
        keys: Keys::Distinct,
        producers: 1,
        share: keys + 1,
        shift: 0,
    };
    let sent = send(&bench, stream, 0..1)
        && reached(probe::waiting, 1)
        && send(&bench, stream, 1..keys + 1);
    let bytes = live_bytes_at_rest() - before;
    bench.end();
    sent.then(|| bytes as f64 / keys as f64 - MESSAGE_BYTES as f64)
}

/// Handlers in flight, each with a key of its own.
fn in_flight(id: Id, handler: Handler, handlers: u64) -> Option<f64> {
    let before = begin();
    let room = (handlers + handlers / 8) as usize;
    let limits = Limits {
        concurrency: room,
        capacity: room,
        lane: LANE,
        keys: handlers,
    };
    let bench = Bench::start(id, handler, limits);
    let stream = Stream {
        keys: Keys::Distinct,
        producers: 1,
        share: handlers,
        shift: 0,
    };
    let sent = send(&bench, stream, 0..handlers) && reached(probe::waiting, handlers);
    let bytes = live_bytes_at_rest() - before;
    bench.end();
    sent.then(|| bytes as f64 / handlers as f64)
}

/// What stays for keys whose messages are all handled: of the second so many of them, so that what
/// is there once for all does not count.
fn idle_key(id: Id, keys: u64) -> Option<f64> {
    begin();
    let bench = Bench::start(id, Handler::Empty, Limits::usual(2 * keys));
    let stream = Stream {
        keys: Keys::Distinct,
        producers: 1,
        share: 2 * keys,
        shift: 0,
    };
    let first = send(&bench, stream, 0..keys) && reached(probe::handled, keys);
    let before = live_bytes_at_rest();
    let second = first && send(&bench, stream, keys..2 * keys) && reached(probe::handled, 2 * keys);
    let bytes = live_bytes_at_rest() - before;
    bench.end();
    second.then(|| (bytes as f64 / keys as f64).max(0.0))
}

/// Allocations of a warm contender.
fn allocations_per_message(id: Id, keys: Keys, messages: u64) -> Option<f64> {
    begin();
    let all = 2 * messages;
    let stream = Stream {
        keys,
        producers: 1,
        share: all,
        shift: 0,
    };
    let bench = Bench::start(id, Handler::Empty, Limits::usual(keys.count(all)));
    let warm = send(&bench, stream, 0..messages) && reached(probe::handled, messages);
    live_bytes_at_rest();
    let before = allocations();
    let sent = warm && send(&bench, stream, messages..all) && reached(probe::handled, all);
    let count = allocations() - before;
    bench.end();
    sent.then(|| count as f64 / messages as f64)
}

fn bare_task<W: Work<Message = Tick>>() -> f64 {
    const HANDLERS: u64 = 100_000;
    let before = begin();
    let runtime = measure::runtime();
    let stream = Stream {
        keys: Keys::Distinct,
        producers: 1,
        share: HANDLERS,
        shift: 0,
    };
    runtime.block_on(async {
        for i in 0..HANDLERS {
            tokio::spawn(W::default().run(stream.tick(i, 0)));
        }
    });
    reached(probe::waiting, HANDLERS);
    let bytes = live_bytes_at_rest() - before;
    probe::open_gate();
    runtime.shutdown_timeout(LIMIT);
    bytes as f64 / HANDLERS as f64
}

/// Sends a part of the stream, and says whether all of it was accepted.
fn send(bench: &Bench, stream: Stream, range: Range<u64>) -> bool {
    let producer = bench.produce(stream, 0, range);
    let sent = bench
        .runtime
        .block_on(async { tokio::time::timeout(LIMIT, producer).await });
    matches!(sent, Ok(Ok(())))
}

fn reached(count: fn() -> u64, target: u64) -> bool {
    let began = Instant::now();
    while count() < target {
        if began.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Forgets the measurement before, and counts what is there without a contender.
fn begin() -> isize {
    probe::reset(probe::MOST_SLOTS, 0);
    live_bytes_at_rest()
}
