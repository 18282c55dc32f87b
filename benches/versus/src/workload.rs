//! What is measured: the list, and how each entry is run.

use std::time::Duration;

use crate::contenders::Id;
use crate::keys::Keys;
use crate::measure::{self, ClosedLoop, OpenLoop, Sample};
use crate::work::Handler;

/// One entry of the list.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As tables and `--only` spell it.
    pub name: String,
    /// What is done.
    pub shape: Shape,
    /// Rounds at most; 0 for no limit of its own.
    pub rounds: usize,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A closed loop.
    Throughput {
        /// What each handler does.
        handler: Handler,
        /// Which key comes when.
        keys: Keys,
        /// Tasks that send.
        producers: u64,
        /// Messages on the clock.
        messages: u64,
    },
    /// A closed loop over 10,000 keys, without and with a blocked key beside them.
    BlockedThroughput,
    /// An open loop over 10,000 keys, likewise.
    BlockedLatency,
    /// An open loop over 2,000 keys, without and with a hot key beside them.
    HotLatency,
    /// Questions and answers, one after the other.
    RoundTrips {
        /// Whether the questions come from a task of the same runtime, and not from another thread.
        inside: bool,
    },
    /// 100,000 handlers waiting at once.
    InFlight,
}

/// Messages of the one throughput that is run for its length, and belongs to no series.
const LONG: u64 = 10_000_000;

/// The throughputs that differ in their keys only: what each handler does, and how many tasks send.
/// A table and a picture for each.
pub fn series() -> impl Iterator<Item = (Handler, u64)> {
    let handlers = [
        Handler::Empty,
        Handler::Yield,
        Handler::Spin,
        Handler::Sleep,
    ];
    handlers
        .into_iter()
        .flat_map(|handler| [1, 4].map(|producers| (handler, producers)))
}

impl Shape {
    /// Its keys, if it belongs to this series.
    pub fn in_series(self, of: Handler, by: u64) -> Option<Keys> {
        match self {
            Shape::Throughput {
                handler,
                keys,
                producers,
                messages,
            } if handler == of && producers == by && messages < LONG => Some(keys),
            _ => None,
        }
    }
}

/// How much time there is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Two minutes instead of what it takes.
    pub quick: bool,
}

impl Scale {
    /// The list.
    pub fn workloads(self) -> Vec<Workload> {
        let mut list = Vec::new();
        for (handler, producers) in series() {
            for keys in self.key_counts(handler, producers) {
                let name = format!("{}/{}/{producers}p", handler.label(), keys.label());
                let messages = self.messages(handler, keys);
                list.push(Workload {
                    name,
                    shape: Shape::Throughput {
                        handler,
                        keys,
                        producers,
                        messages,
                    },
                    rounds: 0,
                });
            }
        }
        if !self.quick {
            list.push(Workload {
                name: "empty/distinct-10M/1p".to_owned(),
                shape: Shape::Throughput {
                    handler: Handler::Empty,
                    keys: Keys::Distinct,
                    producers: 1,
                    messages: LONG,
                },
                rounds: 3,
            });
        }
        for (name, shape) in [
            ("blocked-throughput", Shape::BlockedThroughput),
            ("blocked-latency", Shape::BlockedLatency),
            ("hot-latency", Shape::HotLatency),
            ("receipt/inside", Shape::RoundTrips { inside: true }),
            ("receipt/outside", Shape::RoundTrips { inside: false }),
            ("in-flight-100k", Shape::InFlight),
        ] {
            list.push(Workload {
                name: name.to_owned(),
                shape,
                rounds: 0,
            });
        }
        list
    }

    /// Rounds unless told otherwise.
    pub fn rounds(self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    fn key_counts(self, handler: Handler, producers: u64) -> Vec<Keys> {
        let (k, m) = (1_000, 1_000_000);
        if !self.quick {
            return vec![
                Keys::Cycle(1),
                Keys::Cycle(16),
                Keys::Cycle(k),
                Keys::Cycle(10 * k),
                Keys::Cycle(100 * k),
                Keys::Cycle(m),
                Keys::Distinct,
                Keys::Zipf,
            ];
        }
        match (handler, producers) {
            (Handler::Empty, 1) => vec![
                Keys::Cycle(1),
                Keys::Cycle(k),
                Keys::Cycle(10 * k),
                Keys::Cycle(100 * k),
                Keys::Distinct,
                Keys::Zipf,
            ],
            (Handler::Empty, _) => vec![Keys::Cycle(k), Keys::Distinct],
            (Handler::Yield, 1) => vec![Keys::Cycle(k), Keys::Distinct],
            (Handler::Spin | Handler::Sleep, 1) => vec![Keys::Cycle(10 * k)],
            _ => Vec::new(),
        }
    }

    fn messages(self, handler: Handler, keys: Keys) -> u64 {
        let of = |quick, full| if self.quick { quick } else { full };
        match (handler, keys) {
            (Handler::Empty, Keys::Cycle(1_000_000)) => of(1_000_000, 2_000_000),
            (Handler::Empty, _) => of(150_000, 1_000_000),
            (Handler::Yield, _) => of(100_000, 400_000),
            (Handler::Spin, _) => of(10_000, 40_000),
            // A tenth of all messages have the same key, and that many milliseconds are spent.
            (Handler::Sleep, Keys::Zipf) => of(2_000, 8_000),
            (Handler::Sleep, Keys::Cycle(n)) => n.min(1_024) * of(50, 150),
            // The rest is no closed loop of its own.
            _ => of(50_000, 150_000),
        }
    }

    /// When a measurement is cut.
    fn limit(self) -> Duration {
        Duration::from_millis(if self.quick { 400 } else { 3_000 })
    }
}

impl Workload {
    /// The samples of one contender in one round: one per condition.
    pub fn measure(&self, id: Id, scale: Scale) -> Vec<Sample> {
        let limit = scale.limit();
        match self.shape {
            Shape::Throughput {
                handler,
                keys,
                producers,
                messages,
            } => {
                // Ten million messages may take as long as they take.
                let limit = if messages > 2_000_000 {
                    limit * 10
                } else {
                    limit
                };
                let disturbed = None;
                let run = ClosedLoop {
                    handler,
                    keys,
                    messages,
                    producers,
                    disturbed,
                    limit,
                };
                vec![run.measure(id)]
            }
            Shape::BlockedThroughput => both(|disturbed| ClosedLoop {
                handler: Handler::BlockedKey,
                keys: Keys::Cycle(10_000),
                messages: if scale.quick { 60_000 } else { 1_000_000 },
                producers: 1,
                disturbed: Some(disturbed),
                // Long enough to see that the last of them never come.
                limit: limit.max(Duration::from_secs(2)),
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::BlockedLatency => both(|disturbed| OpenLoop {
                handler: Handler::BlockedKey,
                keys: 10_000,
                rate: 50_000,
                messages: if scale.quick { 10_000 } else { 50_000 },
                disturbed,
                grace: limit,
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::HotLatency => both(|disturbed| OpenLoop {
                handler: Handler::HotKey,
                keys: 2_000,
                rate: 20_000,
                messages: if scale.quick { 4_000 } else { 20_000 },
                disturbed,
                grace: Duration::from_secs(5),
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::RoundTrips { inside } => {
                let questions = if scale.quick { 4_000 } else { 50_000 };
                vec![measure::round_trips(id, questions, inside)]
            }
            Shape::InFlight => vec![measure::in_flight(id, limit)],
        }
    }

    /// The names of its conditions.
    pub fn conditions(&self) -> &'static [&'static str] {
        match self.shape {
            Shape::BlockedThroughput | Shape::BlockedLatency => &["calm", "blocked"],
            Shape::HotLatency => &["calm", "hot"],
            _ => &[""],
        }
    }

    /// Why this contender cannot do it.
    pub fn unfit(&self, id: Id) -> Option<&'static str> {
        let serial = "one handler at a time";
        match self.shape {
            Shape::Throughput {
                handler: Handler::Sleep,
                ..
            }
            | Shape::BlockedThroughput
            | Shape::BlockedLatency
            | Shape::HotLatency
            | Shape::InFlight
                if id.is_serial() =>
            {
                Some(serial)
            }
            Shape::Throughput {
                keys: Keys::Distinct,
                ..
            } if id == Id::FutureQueue => Some("every key must be named beforehand"),
            Shape::Throughput {
                messages: 10_000_000,
                ..
            } if id.keeps_keys() => Some("keeps a task for every key ever seen"),
            Shape::InFlight if id == Id::FutureQueue => Some("every completion walks every key"),
            Shape::InFlight if id.has_workers() => Some("64 workers, 64 handlers in flight"),
            _ => None,
        }
    }
}

/// Without and with a disturbance.
fn both<T>(run: impl Fn(bool) -> T) -> [T; 2] {
    [run(false), run(true)]
}
