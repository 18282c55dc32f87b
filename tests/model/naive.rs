//! The model: lists of messages, and what may happen to them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keylane::{Overflow, Report};
use keylane_testkit::scenario::MS;
use tokio::time::Instant;

use crate::events::{Id, Message};
use crate::plan::{Key, Settings};

mod steps;

mod seen;

mod settling;

mod compare;

/// Timers have milliseconds, and round up.
const LATE: Duration = Duration::from_millis(2);

/// The first wait for a sink that refused; it doubles up to the second.
const SINK_WAIT: Duration = Duration::from_millis(100);
const LONGEST_SINK_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Naive {
    settings: Settings,
    stage: Stage,
    deadline: Option<Instant>,
    messages: BTreeMap<Id, Entry>,
    /// Accepted messages in the order of their acceptance.
    accepted: Vec<Id>,
    /// Messages of each key, head first.
    lanes: BTreeMap<Key, VecDeque<Id>>,
    /// What each head does. Messages without a lane are their own heads.
    heads: BTreeMap<Id, Doing>,
    /// How many came into each lane since it was empty whose senders were on their way when it
    /// became full. Each of them may let in one more: what was granted meanwhile is not taken back.
    excess: BTreeMap<Key, usize>,
    /// How many messages have left the channel for sure: those accepted when it was last quiet.
    routed: usize,
    /// Messages whose senders have not been answered.
    senders: Vec<Id>,
    capacity_left: usize,
    /// Time that passes in this step.
    pass: Duration,
    report: Option<Report<Key, Message>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    Draining,
    Closing,
    Aborting,
    Over,
}

struct Entry {
    message: Message,
    has_receipt: bool,
    /// Its lane was not full when its sender came, or was empty since.
    found_room: bool,
    /// Its sender had to wait all the same.
    waited: bool,
    attempts: u32,
    /// Attempts before it was resumed.
    earlier: u32,
    refusals: u32,
    settled: Option<Settled>,
    resolved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Done,
    DeadLettered,
    Discarded,
    Displaced,
    HandedBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Its turn waits for a runner.
    Waits(Work),
    /// It is with its handler.
    Runs {
        since: Instant,
    },
    /// It is with the sink.
    Posts,
    BacksOff {
        due: Instant,
        work: Work,
    },
    Halted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Attempt(u32),
    Letter,
}

/// What a head in backoff may be doing by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Waits,
    /// Within the precision of timers.
    MayBeDue,
    Due,
}

impl Naive {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            capacity_left: settings.capacity,
            settings,
            stage: Stage::Open,
            deadline: None,
            messages: BTreeMap::new(),
            accepted: Vec::new(),
            lanes: BTreeMap::new(),
            heads: BTreeMap::new(),
            excess: BTreeMap::new(),
            routed: 0,
            senders: Vec::new(),
            pass: Duration::ZERO,
            report: None,
        }
    }

    fn entry(&mut self, id: Id) -> &mut Entry {
        self.messages.get_mut(&id).expect("it was sent")
    }

    fn busy(&self) -> usize {
        let busy = |doing: &&Doing| matches!(doing, Doing::Runs { .. } | Doing::Posts);
        self.heads.values().filter(busy).count()
    }

    fn is_full(&self, key: Option<Key>) -> bool {
        let lane = key.and_then(|key| self.lanes.get(&key));
        lane.is_some_and(|lane| lane.len() >= self.settings.lane_capacity)
    }

    /// Whether senders of a full lane are refused or wait.
    fn holds_back(&self) -> bool {
        matches!(self.settings.overflow, Overflow::Wait | Overflow::Reject)
    }
}

fn timer(due: Instant, now: Instant) -> Timer {
    if now >= due + LATE {
        Timer::Due
    } else if now + MS >= due {
        Timer::MayBeDue
    } else {
        Timer::Waits
    }
}
