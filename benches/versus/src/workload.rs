//! What is measured: the list, and how each entry is run.

use std::time::Duration;

use crate::contenders::Id;
use crate::keys::Keys;
use crate::limits::Limits;
use crate::measure::{self, Beside, ClosedLoop, OpenLoop, Sample};
use crate::work::{HOT_KEYS, Handler};

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
    /// A closed loop over 1,000 keys, one producer, an empty handler, one thing set differently.
    Set(Setting),
    /// A closed loop over 10,000 keys, without and with a blocked key beside them.
    BlockedThroughput,
    /// An open loop over 10,000 keys, likewise.
    BlockedLatency,
    /// An open loop over 2,000 keys, without and with a hot key beside them.
    HotLatency,
    /// A closed loop over 1,000 keys, without and with keys beside them that always have messages:
    /// as many as there are worker threads, and as many as there may be handlers.
    HotThroughput {
        /// Whether handlers sleep for 1 ms, and do not end at once.
        sleeps: bool,
    },
    /// An open loop over 99 keys, without and with one beside them that blocks its thread.
    BlockingLatency,
    /// A closed loop of few messages that block their threads.
    BlockInPlace,
    /// Questions and answers, one after the other.
    RoundTrips {
        /// Whether the questions come from a task of the same runtime, and not from another thread.
        inside: bool,
    },
    /// 100,000 handlers waiting at once.
    InFlight,
}

/// What is set differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Everything runs on one thread.
    CurrentThread,
    /// One message may wait.
    Capacity1,
    /// One handler may run.
    Concurrency1,
}

impl Setting {
    /// In the order of the tables.
    pub const ALL: [Self; 3] = [Self::CurrentThread, Self::Capacity1, Self::Concurrency1];

    /// The name of its workload.
    pub fn workload(self) -> &'static str {
        match self {
            Self::CurrentThread => "current-thread/empty/1k/1p",
            Self::Capacity1 => "capacity-1/empty/1k/1p",
            Self::Concurrency1 => "concurrency-1/empty/1k/1p",
        }
    }
}

/// The conditions of [`Shape::HotThroughput`], each with the number of its hot keys.
pub const HOT: [(&str, u64); 3] = [("calm", 0), ("hot-2", 2), ("hot-64", HOT_KEYS)];

/// Messages of [`Shape::BlockInPlace`].
pub const IN_PLACE: u64 = 200;

/// Messages of the one throughput that is run for its length, and belongs to no series.
const LONG: u64 = 10_000_000;

/// The throughputs that differ in their keys only: what each handler does, and how many tasks send.
/// A table and a picture for each.
pub fn series() -> impl Iterator<Item = (Handler, u64)> {
    let handlers = [
        Handler::Empty,
        Handler::Empty256,
        Handler::Empty1024,
        Handler::Channel,
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
    /// Three minutes instead of what it takes.
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
        for setting in Setting::ALL {
            list.push(Workload {
                name: setting.workload().to_owned(),
                shape: Shape::Set(setting),
                rounds: 0,
            });
        }
        for (name, shape) in [
            ("blocked-throughput", Shape::BlockedThroughput),
            ("blocked-latency", Shape::BlockedLatency),
            ("hot-latency", Shape::HotLatency),
            (
                "hot-throughput/empty",
                Shape::HotThroughput { sleeps: false },
            ),
            (
                "hot-throughput/sleep-1ms",
                Shape::HotThroughput { sleeps: true },
            ),
            ("blocking-latency", Shape::BlockingLatency),
            ("block-in-place", Shape::BlockInPlace),
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
        match handler {
            Handler::Empty256 | Handler::Empty1024 => return vec![Keys::Cycle(k), Keys::Distinct],
            Handler::Channel => return vec![Keys::Cycle(k)],
            _ => {}
        }
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
            (Handler::Yield, _) => vec![Keys::Cycle(100 * k)],
            (Handler::Spin | Handler::Sleep, 1) => vec![Keys::Cycle(10 * k)],
            _ => Vec::new(),
        }
    }

    fn messages(self, handler: Handler, keys: Keys) -> u64 {
        let of = |quick, full| if self.quick { quick } else { full };
        match (handler, keys) {
            (Handler::Empty, Keys::Cycle(1_000_000)) => of(1_000_000, 2_000_000),
            (Handler::Empty | Handler::Empty256 | Handler::Empty1024, _) => of(150_000, 1_000_000),
            (Handler::Yield | Handler::Channel, _) => of(100_000, 400_000),
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
                let run = ClosedLoop {
                    producers,
                    ..ClosedLoop::new(handler, keys, messages, limit)
                };
                vec![run.measure(id)]
            }
            Shape::Set(setting) => {
                let (handler, keys) = (Handler::Empty, Keys::Cycle(1_000));
                let messages = scale.messages(handler, keys);
                let mut run = ClosedLoop::new(handler, keys, messages, limit);
                match setting {
                    Setting::CurrentThread => run.current_thread = true,
                    Setting::Capacity1 => run.limits.capacity = 1,
                    Setting::Concurrency1 => run.limits.concurrency = 1,
                }
                vec![run.measure(id)]
            }
            Shape::BlockedThroughput => {
                let messages = if scale.quick { 60_000 } else { 1_000_000 };
                // Long enough to see that the last of them never come.
                let limit = limit.max(Duration::from_secs(2));
                both(Beside::Backlog, |beside| ClosedLoop {
                    first: 1,
                    beside,
                    ..ClosedLoop::new(Handler::BlockedKey, Keys::Cycle(10_000), messages, limit)
                })
                .map(|run| run.measure(id))
                .into()
            }
            Shape::BlockedLatency => both(Beside::Backlog, |beside| OpenLoop {
                handler: Handler::BlockedKey,
                keys: 10_000,
                rate: 50_000,
                messages: if scale.quick { 10_000 } else { 50_000 },
                beside,
                intended: true,
                grace: limit,
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::HotLatency => both(Beside::Backlog, |beside| OpenLoop {
                handler: Handler::HotKey,
                keys: 2_000,
                rate: 20_000,
                messages: if scale.quick { 4_000 } else { 20_000 },
                beside,
                intended: true,
                grace: Duration::from_secs(5),
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::HotThroughput { sleeps } => HOT
                .map(|(_, hot)| hot_throughput(sleeps, hot, scale).measure(id))
                .into(),
            Shape::BlockingLatency => both(Beside::Steady, |beside| OpenLoop {
                handler: Handler::BlockingKey,
                keys: 99,
                rate: 20_000,
                messages: if scale.quick { 6_000 } else { 50_000 },
                beside,
                intended: false,
                grace: limit,
            })
            .map(|run| run.measure(id))
            .into(),
            Shape::BlockInPlace => {
                // Enough for one after the other on both workers, unless it is a first look.
                let limit = Duration::from_secs(if scale.quick { 2 } else { 10 });
                let mut run =
                    ClosedLoop::new(Handler::BlockInPlace, Keys::Distinct, IN_PLACE, limit);
                run.limits.concurrency = 64;
                vec![run.measure(id)]
            }
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
            Shape::HotThroughput { .. } => &[HOT[0].0, HOT[1].0, HOT[2].0],
            Shape::BlockingLatency => &["calm", "blocking"],
            _ => &[""],
        }
    }

    /// Whether this contender is measured at all. Some workloads leave it at one of each kind.
    pub fn asks(&self, id: Id) -> bool {
        match self.shape {
            Shape::Throughput {
                handler: Handler::Empty256 | Handler::Empty1024 | Handler::Channel,
                ..
            }
            | Shape::Set(_)
            | Shape::HotThroughput { .. }
            | Shape::BlockingLatency
            | Shape::BlockInPlace => id.is_typical(),
            _ => true,
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
            | Shape::HotThroughput { sleeps: true }
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
            Shape::Set(setting) => setting.unfit(id),
            Shape::BlockInPlace if id.is_one_task() => Some(serial),
            Shape::BlockInPlace if id == Id::Grommet => Some("its threads cannot block in place"),
            Shape::InFlight if id == Id::FutureQueue => Some("every completion walks every key"),
            Shape::InFlight if id.has_workers() => Some("64 workers, 64 handlers in flight"),
            _ => None,
        }
    }
}

impl Setting {
    /// Why this contender does not have it.
    fn unfit(self, id: Id) -> Option<&'static str> {
        match (self, id) {
            (Self::CurrentThread, Id::Grommet) => Some("has threads of its own"),
            (Self::Capacity1, Id::Spawn) => Some("no message waits"),
            (Self::Capacity1, Id::Grommet) => Some("holds as many as may be in flight"),
            (Self::Concurrency1, Id::StaticHash) => Some("64 workers"),
            (Self::Concurrency1, Id::Grommet) => Some("2 shards, one handler in each"),
            _ => None,
        }
    }
}

/// As many handlers at once as there are hot keys at most, and as static routing has workers. The
/// backlog of all hot keys is a quarter of the capacity.
fn hot_throughput(sleeps: bool, hot: u64, scale: Scale) -> ClosedLoop {
    let (handler, messages) = match (sleeps, scale.quick) {
        (false, true) => (Handler::HotKeys, 200_000),
        (false, false) => (Handler::HotKeys, 1_000_000),
        (true, true) => (Handler::HotSleepers, 5_000),
        (true, false) => (Handler::HotSleepers, 40_000),
    };
    ClosedLoop {
        first: HOT_KEYS,
        beside: match hot {
            0 => Beside::Nothing,
            keys => Beside::Endless(keys),
        },
        limits: Limits {
            concurrency: HOT_KEYS as usize,
            lane: 256,
            ..Limits::usual(0)
        },
        ..ClosedLoop::new(handler, Keys::Cycle(1_000), messages, 2 * scale.limit())
    }
}

/// Without and with a disturbance.
fn both<T>(disturbance: Beside, run: impl Fn(Beside) -> T) -> [T; 2] {
    [run(Beside::Nothing), run(disturbance)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_name_of_its_own() {
        for quick in [false, true] {
            let mut names: Vec<String> = Scale { quick }
                .workloads()
                .into_iter()
                .map(|workload| workload.name)
                .collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
