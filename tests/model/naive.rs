//! The model: lists of messages, and what may happen to them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keylane::watching::LaneState;
use keylane::{Overflow, Report};
use keylane_testkit::scenario::MS;
use tokio::time::Instant;

use crate::events::{Event, Id, Message, Orders};
use crate::plan::{After, Answer, Decision, End, Key, Settings};

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
    /// became full. Each of them may let in one more: nobody takes back what was granted meanwhile.
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

    // ---- What a step may want to know ----------------------------------------------------------

    pub(crate) fn senders(&self) -> impl Iterator<Item = Id> {
        self.senders.iter().copied()
    }

    /// Receipts that somebody waits for.
    pub(crate) fn receipts(&self) -> impl Iterator<Item = Id> {
        let accepted = self.accepted.iter().copied();
        accepted.filter(|id| self.messages[id].has_receipt && !self.messages[id].resolved)
    }

    /// The halted head of a key.
    /// The head that a decision would be about. `Err`: its time has just come, and nobody can say
    /// whether it is out already.
    pub(crate) fn decidable(&self, key: Key, decision: Decision) -> Result<Option<Id>, ()> {
        let head = self.lanes.get(&key).and_then(|lane| lane.front().copied());
        let Some(head) = head else { return Ok(None) };
        match self.heads[&head] {
            Doing::Halted => Ok(Some(head)),
            Doing::BacksOff { due, .. } if decision != Decision::Resume => {
                match timer(due, Instant::now()) {
                    Timer::Waits => Ok(Some(head)),
                    _ => Err(()),
                }
            }
            _ => Ok(None),
        }
    }

    /// What `try_send` may answer.
    pub(crate) fn expected_of_try(&self, key: Option<Key>) -> &'static [&'static str] {
        let excess = key.and_then(|key| self.excess.get(&key));
        if self.stage > Stage::Open {
            &["closed"]
        } else if self.capacity_left == 0 {
            &["full"]
        } else if !self.holds_back() || !self.is_full(key) {
            &["accepted"]
        } else if excess.is_some_and(|excess| *excess > 0) {
            &["lane full", "accepted"]
        } else {
            &["lane full"]
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.report.is_some()
    }

    pub(crate) fn take_pass(&mut self) -> Duration {
        std::mem::take(&mut self.pass)
    }

    // ---- What a step does ----------------------------------------------------------------------

    pub(crate) fn pass(&mut self, time: Duration) {
        self.pass += time;
    }

    /// Somebody sends a message.
    pub(crate) fn offered(&mut self, message: &Message, submit: bool) {
        let entry = Entry {
            message: message.clone(),
            has_receipt: submit,
            found_room: !self.is_full(message.key),
            waited: false,
            attempts: 0,
            earlier: 0,
            refusals: 0,
            settled: None,
            resolved: false,
        };
        self.messages.insert(message.id, entry);
        self.senders.push(message.id);
    }

    /// A sender that waited is gone: its message was never here.
    pub(crate) fn cancelled(&mut self, id: Id) {
        self.senders.retain(|sender| *sender != id);
        self.messages.remove(&id);
    }

    pub(crate) fn receipt_dropped(&mut self, id: Id) {
        self.entry(id).has_receipt = false;
    }

    pub(crate) fn decided(&mut self, key: Key, decision: Decision) {
        let head = *self.lanes[&key].front().expect("it was there");
        match decision {
            Decision::Resume | Decision::Replace => {
                let entry = self.entry(head);
                entry.earlier += std::mem::take(&mut entry.attempts);
                entry.refusals = 0;
                if decision == Decision::Replace {
                    entry.earlier = 0;
                }
                self.heads.insert(head, Doing::Waits(Work::Attempt(1)));
            }
            Decision::Skip => {
                self.settle(head, Settled::Discarded);
                self.advance(head);
            }
        }
    }

    pub(crate) fn end(&mut self, end: End) {
        match end {
            End::Drain(within) => {
                self.stage = self.stage.max(Stage::Draining);
                self.deadline = within.map(|within| Instant::now() + within);
                let halted = self
                    .heads
                    .iter()
                    .filter(|(_, doing)| **doing == Doing::Halted);
                let halted: Vec<_> = halted.map(|(id, _)| *id).collect();
                halted.into_iter().for_each(|id| self.hand_back(id));
            }
            End::Close => self.stop(Stage::Closing),
            End::Abort => self.stop(Stage::Aborting),
        }
    }

    /// Nothing starts any more. What is not in somebody's hands goes back.
    fn stop(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
        for (id, doing) in self.heads.clone() {
            match doing {
                Doing::Runs { .. } | Doing::Posts => self.hand_back_behind(id),
                Doing::Waits(_) | Doing::BacksOff { .. } | Doing::Halted => self.hand_back(id),
            }
        }
    }

    // ---- What was seen -------------------------------------------------------------------------

    pub(crate) fn see(&mut self, at: Instant, event: Event) {
        let is_late = self.deadline.is_some_and(|deadline| at + MS >= deadline);
        let is_end = match &event {
            Event::Dropped(_) | Event::LetterDropped(_) => true,
            Event::Resolved(id, "handed back") => self.messages[id].settled.is_none(),
            _ => false,
        };
        let is_report = matches!(&event, Event::Reported(report) if report.deadline_reached);
        if is_late && (is_end || is_report) && self.stage < Stage::Aborting {
            self.stop(Stage::Aborting);
        }
        match event {
            Event::Accepted(id) => self.accepted(id),
            Event::Refused(id, why) => self.refused(id, why),
            Event::Started(id, attempt) => {
                self.starts(id, Work::Attempt(attempt), at);
                self.entry(id).attempts = attempt;
                self.heads.insert(id, Doing::Runs { since: at });
            }
            Event::Answered(id, answer) => {
                let doing = self.heads.get(&id).copied();
                assert!(
                    matches!(doing, Some(Doing::Runs { .. })),
                    "{id} answered: {doing:?}"
                );
                if answer == Answer::Good {
                    self.settle(id, Settled::Done);
                    self.advance(id);
                } else {
                    self.failed(id, at);
                }
            }
            Event::Dropped(id) => self.dropped(id, at),
            Event::LetterStarted(id, attempts) => {
                assert_eq!(
                    attempts,
                    self.entry(id).attempts,
                    "attempts of the letter of {id}"
                );
                self.starts(id, Work::Letter, at);
                self.heads.insert(id, Doing::Posts);
            }
            Event::LetterTaken(id) => {
                self.posted(id);
                self.settle(id, Settled::DeadLettered);
                self.advance(id);
            }
            Event::LetterRefused(id) => {
                self.posted(id);
                let refusals = self.entry(id).refusals;
                self.entry(id).refusals += 1;
                let wait = SINK_WAIT * 2_u32.pow(refusals.min(20));
                self.back_off(id, at + wait.min(LONGEST_SINK_WAIT), Work::Letter);
            }
            Event::LetterDropped(id) => {
                self.posted(id);
                assert_eq!(
                    self.stage,
                    Stage::Aborting,
                    "the letter of {id} was dropped"
                );
                self.hand_back(id);
            }
            Event::Resolved(id, name) => self.resolved(id, name),
            Event::Reported(report) => {
                assert!(self.report.is_none(), "two reports");
                assert!(
                    self.heads.is_empty(),
                    "the end came before {:?}",
                    self.heads
                );
                self.stage = Stage::Over;
                self.report = Some(report);
            }
            Event::Wrong(what) => panic!("{what}"),
        }
    }

    fn accepted(&mut self, id: Id) {
        assert_eq!(self.stage, Stage::Open, "{id} was accepted after the end");
        self.senders.retain(|sender| *sender != id);
        self.accepted.push(id);
        let Some(key) = self.messages[&id].message.key else {
            self.heads.insert(id, Doing::Waits(Work::Attempt(1)));
            return;
        };
        let is_full = self.is_full(Some(key));
        let Entry {
            found_room, waited, ..
        } = self.messages[&id];
        if found_room && waited {
            *self.excess.entry(key).or_default() += 1;
        }
        let lane = self.lanes.entry(key).or_default();
        if lane.is_empty() {
            lane.push_back(id);
            self.heads.insert(id, Doing::Waits(Work::Attempt(1)));
        } else if !is_full {
            lane.push_back(id);
        } else {
            match self.settings.overflow {
                Overflow::DropOldest => {
                    lane.push_back(id);
                    let oldest = lane.remove(1).expect("there is one behind the head");
                    self.settle(oldest, Settled::Displaced);
                }
                Overflow::DeadLetter => {
                    self.heads.insert(id, Doing::Waits(Work::Letter));
                }
                _ => {
                    if !found_room {
                        let excess = self.excess.get_mut(&key).filter(|excess| **excess > 0);
                        let excess =
                            excess.expect("nobody else makes a lane deeper than its limit");
                        *excess -= 1;
                    }
                    self.lanes.entry(key).or_default().push_back(id);
                }
            }
        }
    }

    fn refused(&mut self, id: Id, why: &str) {
        self.senders.retain(|sender| *sender != id);
        let key = self.messages[&id].message.key;
        match why {
            "closed" => assert!(self.stage > Stage::Open, "{id} found it closed"),
            "lane full" => {
                // Or what room there is was promised to one who waits for the capacity.
                let promised = self
                    .senders
                    .iter()
                    .any(|id| self.messages[id].message.key == key);
                assert!(promised || self.is_full(key), "{id} found its lane full");
            }
            _ => assert_eq!(self.capacity_left, 0, "{id} found it full"),
        }
        self.messages.remove(&id);
    }

    /// A head goes to its handler, or to the sink.
    fn starts(&mut self, id: Id, work: Work, at: Instant) {
        assert!(
            self.stage < Stage::Closing,
            "{work:?} of {id} started after the end"
        );
        let doing = self.heads.get(&id).copied();
        let may = match doing {
            Some(Doing::Waits(next)) => next == work,
            Some(Doing::BacksOff { due, work: next }) => next == work && at + MS >= due,
            _ => false,
        };
        assert!(may, "{work:?} of {id} started, and it was {doing:?}");
        assert!(self.busy() < self.settings.concurrency, "too many at once");
    }

    /// The future of a handler was dropped.
    fn dropped(&mut self, id: Id, at: Instant) {
        let Some(Doing::Runs { since }) = self.heads.get(&id).copied() else {
            panic!("{id} was dropped and did not run");
        };
        if self.stage == Stage::Aborting {
            self.hand_back(id);
            return;
        }
        let timeout = self.settings.timeout.expect("there is a time-out");
        assert!(at + MS >= since + timeout, "{id} was dropped too early");
        self.failed(id, at);
    }

    fn failed(&mut self, id: Id, at: Instant) {
        let attempts = self.messages[&id].attempts;
        let has_lane = self.messages[&id].message.key.is_some();
        if attempts < self.settings.attempts {
            let due = at + self.settings.delay;
            return self.back_off(id, due, Work::Attempt(attempts + 1));
        }
        match self.settings.exhausted {
            After::Letter if self.stage < Stage::Closing => {
                self.heads.insert(id, Doing::Waits(Work::Letter));
            }
            After::Letter => self.hand_back(id),
            After::Halt if has_lane && self.stage == Stage::Open => {
                self.heads.insert(id, Doing::Halted);
            }
            // Nobody will decide any more.
            After::Halt if has_lane => self.hand_back(id),
            After::Halt | After::Discard => {
                self.settle(id, Settled::Discarded);
                self.advance(id);
            }
        }
    }

    fn back_off(&mut self, id: Id, due: Instant, work: Work) {
        if self.stage >= Stage::Closing {
            self.hand_back(id);
        } else {
            self.heads.insert(id, Doing::BacksOff { due, work });
        }
    }

    fn posted(&mut self, id: Id) {
        let doing = self.heads.get(&id).copied();
        assert_eq!(doing, Some(Doing::Posts), "the sink had {id}");
    }

    fn resolved(&mut self, id: Id, name: &str) {
        let entry = self.entry(id);
        assert!(!entry.resolved, "{id} was answered twice");
        entry.resolved = true;
        let should = match entry.settled {
            None => "open",
            Some(Settled::Done) => "done",
            Some(Settled::DeadLettered) => "dead-lettered",
            Some(Settled::Discarded) => "discarded",
            Some(Settled::Displaced) => "displaced",
            Some(Settled::HandedBack) => "handed back",
        };
        assert_eq!(name, should, "the answer of {id}");
    }

    // ---- Settling ------------------------------------------------------------------------------

    fn settle(&mut self, id: Id, settled: Settled) {
        let entry = self.entry(id);
        assert_eq!(entry.settled, None, "{id} settles twice");
        entry.settled = Some(settled);
    }

    /// A head has settled: its lane goes on.
    fn advance(&mut self, id: Id) {
        self.heads.remove(&id);
        let Some((key, mut lane)) = self.take_lane(id) else {
            return;
        };
        assert_eq!(lane.pop_front(), Some(id));
        if self.stage >= Stage::Closing {
            lane.into_iter()
                .for_each(|id| self.settle(id, Settled::HandedBack));
            return;
        }
        if lane.iter().all(|id| self.may_be_in_channel(*id)) {
            // The gate went with the lane, and whoever waited at it is on the way. What is still in
            // the channel finds no lane.
            for sender in self.senders.clone() {
                let entry = self.entry(sender);
                entry.found_room |= entry.message.key == Some(key);
            }
        }
        if let Some(next) = lane.front() {
            self.heads.insert(*next, Doing::Waits(Work::Attempt(1)));
            self.lanes.insert(key, lane);
        } else {
            self.excess.remove(&key);
        }
    }

    fn may_be_in_channel(&self, id: Id) -> bool {
        self.accepted[self.routed..].contains(&id)
    }

    /// A head and all behind it go back.
    fn hand_back(&mut self, id: Id) {
        self.hand_back_behind(id);
        self.settle(id, Settled::HandedBack);
        self.advance(id);
    }

    fn hand_back_behind(&mut self, id: Id) {
        if let Some((key, mut lane)) = self.take_lane(id) {
            let behind = lane.split_off(1);
            self.lanes.insert(key, lane);
            behind
                .into_iter()
                .for_each(|id| self.settle(id, Settled::HandedBack));
        }
    }

    /// The lane whose head this is; a letter beside its lane has none.
    fn take_lane(&mut self, head: Id) -> Option<(Key, VecDeque<Id>)> {
        let key = self.messages[&head].message.key?;
        if self.lanes.get(&key)?.front() != Some(&head) {
            return None;
        }
        self.lanes.remove_entry(&key)
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

    // ---- What must be true when nothing moves without time -------------------------------------

    pub(crate) fn compare(&mut self, orders: &Orders) {
        let now = Instant::now();
        self.compare_figures(orders, now);
        for key in self.lanes.keys() {
            self.compare_lane(orders, *key, now);
        }
        if self.stage == Stage::Open {
            self.check_senders();
        } else {
            assert!(
                self.senders.is_empty(),
                "{:?} wait at the end",
                self.senders
            );
        }
        if let Some(deadline) = self.deadline {
            assert!(
                self.is_over() || now < deadline + LATE,
                "the deadline has passed"
            );
        }
        for id in &self.accepted {
            let entry = &self.messages[id];
            let owed = entry.has_receipt && entry.settled.is_some() && !entry.resolved;
            assert!(
                !owed,
                "the receipt of {id} has no answer: {:?}",
                entry.settled
            );
        }
    }

    fn compare_figures(&mut self, orders: &Orders, now: Instant) {
        let stats = orders.stats();
        let (mut waiting, mut backing_off, mut unsure, mut halted) = (0, 0, 0, 0);
        for (id, doing) in &self.heads {
            match doing {
                Doing::Waits(_) => waiting += 1,
                Doing::BacksOff { due, .. } => match timer(*due, now) {
                    Timer::Waits => backing_off += 1,
                    Timer::MayBeDue => unsure += 1,
                    Timer::Due => waiting += 1,
                },
                Doing::Halted => halted += 1,
                Doing::Runs { since } => {
                    let limit = self.settings.timeout.map(|timeout| *since + timeout + LATE);
                    assert!(limit.is_none_or(|limit| now < limit), "{id} runs too long");
                }
                Doing::Posts => {}
            }
        }
        let settled = |is: &[Settled]| {
            let entries = self
                .accepted
                .iter()
                .filter_map(|id| self.messages[id].settled);
            entries.filter(|settled| is.contains(settled)).count()
        };
        // Without senders to hold back, no lane has a gate.
        let has_gates = self.stage == Stage::Open && self.holds_back();
        let full = self
            .lanes
            .keys()
            .filter(|key| has_gates && self.is_full(Some(**key)));
        let full = full.count();
        let unsettled = self
            .accepted
            .iter()
            .filter(|id| self.messages[id].settled.is_none())
            .count();
        let equal = [
            ("accepted", stats.accepted as usize, self.accepted.len()),
            ("done", stats.done as usize, settled(&[Settled::Done])),
            (
                "dead-lettered",
                stats.dead_lettered as usize,
                settled(&[Settled::DeadLettered]),
            ),
            (
                "discarded",
                stats.discarded as usize,
                settled(&[Settled::Discarded, Settled::Displaced]),
            ),
            (
                "handed back",
                stats.handed_back as usize,
                settled(&[Settled::HandedBack]),
            ),
            ("lanes", stats.lanes, self.lanes.len()),
            ("halted", stats.halted, halted),
            (
                "capacity left",
                stats.capacity_left + unsettled,
                self.settings.capacity + stats.stalled,
            ),
        ];
        for (what, is, should) in equal {
            assert_eq!(is, should, "{what}: {stats:?}");
        }
        // Whatever waits with a failing head is no load. At the limit it depends on who came first,
        // and that is not looked at again.
        let stalls = |lane: &&VecDeque<Id>| match self.heads[&lane[0]] {
            Doing::BacksOff { due, .. } => timer(due, now) == Timer::Waits,
            Doing::Halted => true,
            Doing::Waits(_) | Doing::Runs { .. } | Doing::Posts => false,
        };
        let behind: usize = self.lanes.values().filter(stalls).map(VecDeque::len).sum();
        let has_room = self.settings.stalled_capacity >= self.accepted.len();
        let busy = self.busy();
        let between = [
            ("in flight", stats.in_flight, busy, busy + unsure),
            ("ready", stats.ready, waiting, waiting + unsure),
            (
                "backing off",
                stats.backing_off,
                backing_off,
                backing_off + unsure,
            ),
            ("full lanes", stats.full_lanes, full, self.lanes.len()),
            (
                "stalled",
                stats.stalled,
                if has_room { behind } else { 0 },
                unsettled.min(self.settings.stalled_capacity),
            ),
        ];
        for (what, is, least, most) in between {
            assert!(
                (least..=most).contains(&is),
                "{what}: {is}, not {least} to {most}: {stats:?}"
            );
        }
        let concurrency = self.settings.concurrency;
        assert!(busy <= concurrency, "{busy} in flight");
        assert!(
            waiting == 0 || busy == concurrency,
            "{waiting} heads wait, and only {busy} of {concurrency} are in flight"
        );
        self.capacity_left = stats.capacity_left;
        self.routed = self.accepted.len();
        for sender in self.senders.clone() {
            self.entry(sender).waited = true;
        }
    }

    fn compare_lane(&self, orders: &Orders, key: Key, now: Instant) {
        let lane = &self.lanes[&key];
        let view = orders.inspect(&key).expect("the lane is there");
        assert_eq!(view.depth, lane.len(), "the depth of key {key}");
        assert!(view.full || !self.is_full(Some(key)), "key {key} is full");
        let head = lane[0];
        let (doing, entry) = (self.heads[&head], &self.messages[&head]);
        let fits = match (&view.state, doing) {
            (LaneState::Ready, Doing::Waits(_)) => true,
            // Its handler has waited; now its letter waits for a runner.
            (LaneState::Running { .. }, Doing::Waits(Work::Letter)) => true,
            (LaneState::Ready, Doing::BacksOff { due, .. }) => timer(due, now) != Timer::Waits,
            (LaneState::Running { attempt, .. }, Doing::Runs { .. } | Doing::Posts) => {
                *attempt == entry.attempts
            }
            (LaneState::Backoff { next_attempt, .. }, Doing::BacksOff { due, work }) => {
                timer(due, now) != Timer::Due && work == Work::Attempt(*next_attempt)
            }
            (LaneState::DeadLettering { refusals, .. }, Doing::BacksOff { due, work }) => {
                timer(due, now) != Timer::Due && work == Work::Letter && *refusals == entry.refusals
            }
            (LaneState::Halted { attempts, .. }, Doing::Halted) => *attempts == entry.attempts,
            _ => false,
        };
        assert!(fits, "key {key} is {view:?}, and its head {head} {doing:?}");
    }

    /// Whoever waits has a reason.
    fn check_senders(&self) {
        for id in &self.senders {
            let key = self.messages[id].message.key;
            let waits = self.settings.overflow == Overflow::Wait;
            let has_reason = self.capacity_left == 0 || (waits && self.is_full(key));
            assert!(has_reason, "the sender of {id} waits, and there is room");
        }
    }

    /// The report tells what happened.
    pub(crate) fn conclude(self) {
        let report = self.report.as_ref().expect("the end has come");
        let count = |settled| {
            let entries = self
                .accepted
                .iter()
                .filter(|id| self.messages[id].settled == Some(settled));
            entries.count() as u64
        };
        assert_eq!(report.accepted, self.accepted.len() as u64);
        assert_eq!(report.done, count(Settled::Done));
        assert_eq!(report.dead_lettered, count(Settled::DeadLettered));
        assert_eq!(
            report.discarded,
            count(Settled::Discarded) + count(Settled::Displaced)
        );
        assert_eq!(report.handed_back, count(Settled::HandedBack));
        let settled = report.done + report.dead_lettered + report.discarded + report.handed_back;
        assert_eq!(settled, report.accepted, "{report}");
        let returned: Vec<_> = report
            .returned
            .iter()
            .map(|back| {
                let message = back.message.as_ref().expect("retries keep a copy");
                (back.key, message.id, back.attempts)
            })
            .collect();
        let should: Vec<_> = self
            .accepted
            .iter()
            .map(|id| (*id, &self.messages[id]))
            .filter(|(_, entry)| entry.settled == Some(Settled::HandedBack) && !entry.has_receipt)
            .map(|(id, entry)| (entry.message.key, id, entry.earlier + entry.attempts))
            .collect();
        assert_eq!(
            returned, should,
            "what came back, in the order of acceptance"
        );
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
