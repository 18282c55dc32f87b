//! A simple and correct scheduler. Its histories must always pass, and must fail when spoiled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::planted::Planted;
use super::spoilers::spoilers;
use crate::check::evidence::{Drained, Evidence};
use crate::check::rule::Rule;
use crate::events::{Acceptance, Event, Id, Key, Outcome};

const KEYS: usize = 3;
const BACKOFF_MS: u64 = 700;

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::scenario::cases(1000), ..ProptestConfig::default() })]

    #[test]
    fn a_correct_scheduler_passes(settings in settings(), dice in vec(any::<u8>(), 0..400)) {
        let (history, evidence) = Model::play(settings, dice);
        let verdict = history.check(&evidence);
        let verdict = verdict.map_err(|broken| TestCaseError::fail(format!("{broken:#?}")))?;
        verdict.assert_judged(&rules_in_play(&settings, &history));
    }

    #[test]
    fn a_spoiled_history_is_caught(
        settings in settings(),
        dice in vec(any::<u8>(), 50..400),
        which: prop::sample::Index,
    ) {
        // After a crash it is not certain which rule must fail.
        let settings = Settings { crashes: false, ..settings };
        let (mut history, evidence) = Model::play(settings, dice);
        let spoilers = spoilers(&history.records);
        prop_assume!(!spoilers.is_empty());
        let (rule, records) = spoilers[which.index(spoilers.len())].clone();
        history.records = records;
        let broken = history.check(&evidence).expect_err("a spoiled history");
        prop_assert!(broken.iter().any(|violation| violation.rule == rule), "{rule}: {broken:#?}");
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        1..4_usize,
        1..4_u32,
        any::<bool>(),
        any::<bool>(),
        0..3_u8,
        any::<bool>(),
    )
        .prop_map(
            |(concurrency, max_attempts, letters, acks, faults, hands_back)| Settings {
                concurrency,
                max_attempts,
                letters,
                acks,
                // Without acks no settlement survives a crash, and a merged message has no ack of
                // its own.
                crashes: acks && faults == 1,
                coalesces: !acks && faults == 2,
                hands_back,
            },
        )
}

/// The rules that must be judged whole for a history of these settings.
fn rules_in_play(settings: &Settings, history: &Planted) -> Vec<Rule> {
    let has = |is: fn(&Event) -> bool| history.records.iter().any(|record| is(&record.event));
    let mut rules = Vec::new();
    if has(|event| matches!(event, Event::Start { .. })) {
        rules.extend([
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
            Rule::Duplicates,
        ]);
    }
    if has(|event| {
        matches!(
            event,
            Event::Sent {
                acceptance: Acceptance::Ok,
                ..
            }
        )
    }) {
        rules.extend([Rule::NoLoss, Rule::Liveness]);
    }
    if has(|event| matches!(event, Event::AckReq { .. })) {
        rules.push(Rule::Acks);
    }
    if has(|event| matches!(event, Event::Dead { .. })) {
        rules.push(Rule::DeadLetters);
    }
    if has(|event| matches!(event, Event::SinkWrite { .. })) {
        rules.push(Rule::Fencing);
    }
    if settings.coalesces {
        rules.push(Rule::Coalescing);
    }
    if !has(|event| matches!(event, Event::Crash { .. })) {
        rules.push(Rule::Drain);
    }
    rules
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    concurrency: usize,
    max_attempts: u32,
    /// After the last attempt: dead-letter the message, or else discard it.
    letters: bool,
    acks: bool,
    crashes: bool,
    coalesces: bool,
    /// At the end: hand back the waiting messages, or else handle them.
    hands_back: bool,
}

/// Chooses the next step. Without more dice it is always the first possibility.
#[derive(Debug)]
struct Dice(std::vec::IntoIter<u8>);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.next().map_or(0, |face| usize::from(face) % sides)
    }
}

/// Each keyless message has a lane of its own, so keyless messages have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneName {
    Keyed(Key),
    Keyless(Id),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ReadyAt(u64),
    Running,
    /// Its letter is written and not yet durable.
    Lettering,
}

#[derive(Debug)]
struct Lane {
    /// The waiting messages and the head, whatever its state.
    messages: VecDeque<Id>,
    state: State,
    /// The number of attempts that the head has had.
    attempt: u32,
}

#[derive(Debug)]
struct Model {
    settings: Settings,
    dice: Dice,
    history: Planted,
    now: u64,
    epoch: u64,
    lanes: BTreeMap<LaneName, Lane>,
    /// Every accepted message and its lane, by id. Ids grow in the order of acceptance.
    accepted: BTreeMap<Id, LaneName>,
    seqs: BTreeMap<Option<Key>, u64>,
    next_id: Id,
    /// The answer that the sender has not recorded yet.
    unnoted: Option<Event>,
    acks_asked: VecDeque<Id>,
    acked: BTreeSet<Id>,
    discarded: Vec<Id>,
    handed_back: Vec<Id>,
    faults_stopped: u64,
}

impl Model {
    fn play(settings: Settings, dice: Vec<u8>) -> (Planted, Evidence) {
        let mut model = Model {
            settings,
            dice: Dice(dice.into_iter()),
            history: Planted::new(),
            now: 0,
            epoch: 1,
            lanes: BTreeMap::new(),
            accepted: BTreeMap::new(),
            seqs: BTreeMap::new(),
            next_id: 1,
            unnoted: None,
            acks_asked: VecDeque::new(),
            acked: BTreeSet::new(),
            discarded: Vec::new(),
            handed_back: Vec::new(),
            faults_stopped: 0,
        };
        while !model.dice.0.as_slice().is_empty() {
            model.step();
            model.dispatch();
        }
        model.finish();
        let evidence = model.evidence();
        (model.history, evidence)
    }

    fn step(&mut self) {
        match self.dice.roll(12) {
            0..=3 => self.send(),
            4..=6 => self.end_one(),
            7 => self.make_letters_durable(),
            8 => self.answer_ack(),
            9 | 10 => self.pass_time(),
            _ if self.settings.crashes && self.dice.roll(4) == 0 => self.crash(),
            _ => self.note(),
        }
    }

    fn emit(&mut self, event: Event) {
        self.history.set_now(self.now);
        self.history.push(event);
    }

    /// The sender records the answer to its last send, at once or after other steps.
    fn note(&mut self) {
        if let Some(event) = self.unnoted.take() {
            self.emit(event);
        }
    }

    fn send(&mut self) {
        self.note();
        let id = self.next_id;
        self.next_id += 1;
        let key = Some(self.dice.roll(KEYS + 1) as Key).filter(|&key| key < KEYS as Key);
        let seq = self.seqs.entry(key).or_default();
        *seq += 1;
        let seq = *seq;
        let (accepted, acceptance) = match self.dice.roll(8) {
            0 => (false, Acceptance::Fail),
            1 => (false, Acceptance::Unknown),
            2 => (true, Acceptance::Unknown),
            _ => (true, Acceptance::Ok),
        };
        if accepted {
            self.accept(id, key);
        }
        self.unnoted = Some(Event::Sent {
            key,
            seq,
            id,
            acceptance,
        });
        if self.dice.roll(2) == 0 {
            self.note();
        }
    }

    fn accept(&mut self, id: Id, key: Option<Key>) {
        let name = key.map_or(LaneName::Keyless(id), LaneName::Keyed);
        self.accepted.insert(id, name);
        let lane = self.lanes.entry(name).or_insert_with(|| Lane {
            messages: VecDeque::new(),
            state: State::ReadyAt(0),
            attempt: 0,
        });
        let untouched_tail = lane.messages.len() > 1;
        let merged = if self.settings.coalesces && untouched_tail {
            lane.messages.pop_back()
        } else {
            None
        };
        lane.messages.push_back(id);
        if let Some(merged) = merged {
            self.emit(Event::Coalesced {
                id: merged,
                into: id,
            });
        }
    }

    /// Starts every head that may start.
    fn dispatch(&mut self) {
        let running = |lane: &Lane| lane.state == State::Running;
        let mut free =
            self.settings.concurrency - self.lanes.values().filter(|l| running(l)).count();
        let mut starts = Vec::new();
        for lane in self.lanes.values_mut() {
            if free > 0 && matches!(lane.state, State::ReadyAt(at) if at <= self.now) {
                free -= 1;
                lane.state = State::Running;
                lane.attempt += 1;
                starts.push((lane.messages[0], lane.attempt));
            }
        }
        for (id, attempt) in starts {
            self.emit(Event::Start {
                id,
                attempt,
                token: self.epoch,
            });
        }
    }

    fn names(&self, state: State) -> Vec<LaneName> {
        self.lanes
            .iter()
            .filter(|(_, lane)| lane.state == state)
            .map(|(name, _)| *name)
            .collect()
    }

    fn end_one(&mut self) {
        let running = self.names(State::Running);
        if running.is_empty() {
            return;
        }
        let name = running[self.dice.roll(running.len())];
        let outcome = match self.dice.roll(8) {
            0..=3 => Outcome::Ok,
            4 => Outcome::Error,
            5 => Outcome::Panicked,
            6 => Outcome::Dropped,
            _ => Outcome::Fatal,
        };
        let (id, attempt) = (self.lanes[&name].messages[0], self.lanes[&name].attempt);
        if outcome == Outcome::Ok
            && let LaneName::Keyed(key) = name
        {
            self.emit(Event::SinkWrite {
                key,
                token: self.epoch,
                accepted: true,
            });
        }
        self.emit(Event::End {
            id,
            attempt,
            outcome,
        });
        if outcome == Outcome::Ok {
            self.settle(name);
        } else if outcome != Outcome::Fatal && attempt < self.settings.max_attempts {
            let ready_at = self.now + self.dice.roll(BACKOFF_MS as usize) as u64;
            self.set(name, State::ReadyAt(ready_at));
        } else if self.settings.letters {
            self.set(name, State::Lettering);
        } else {
            self.discarded.push(id);
            self.settle(name);
        }
    }

    fn set(&mut self, name: LaneName, state: State) {
        self.lanes
            .get_mut(&name)
            .expect("a lane that has a head")
            .state = state;
    }

    /// The head is settled: the source gets its ack, and the next message becomes the head.
    fn settle(&mut self, name: LaneName) {
        let lane = self.lanes.get_mut(&name).expect("a lane that has a head");
        let id = lane.messages.pop_front().expect("a lane has a head");
        lane.state = State::ReadyAt(0);
        lane.attempt = 0;
        if lane.messages.is_empty() {
            self.lanes.remove(&name);
        }
        if self.settings.acks {
            self.emit(Event::AckReq { id });
            self.acks_asked.push_back(id);
        }
    }

    fn make_letters_durable(&mut self) {
        for name in self.names(State::Lettering) {
            self.emit(Event::Dead {
                id: self.lanes[&name].messages[0],
            });
            self.settle(name);
        }
    }

    fn answer_ack(&mut self) {
        let Some(id) = self.acks_asked.pop_front() else {
            return;
        };
        if self.dice.roll(4) != 1 {
            self.acked.insert(id);
            self.emit(Event::AckOk { id });
            return;
        }
        self.emit(Event::AckUnknown { id });
        if self.dice.roll(2) == 0 {
            self.acked.insert(id);
        }
    }

    fn pass_time(&mut self) {
        self.now += self.dice.roll(200) as u64;
    }

    /// The process has crashed. Another process takes over all messages whose ack was not
    /// confirmed.
    fn crash(&mut self) {
        self.note();
        self.emit(Event::Crash { epoch: self.epoch });
        self.faults_stopped = self.now;
        for name in self.names(State::Running) {
            if self.dice.roll(2) == 1 {
                let lane = &self.lanes[&name];
                let (id, attempt) = (lane.messages[0], lane.attempt);
                self.emit(Event::End {
                    id,
                    attempt,
                    outcome: Outcome::Dropped,
                });
            }
        }
        for id in std::mem::take(&mut self.acks_asked) {
            if self.dice.roll(2) == 0 {
                self.acked.insert(id);
            }
        }
        self.epoch += 1;
        self.lanes.clear();
        let left: Vec<_> = self
            .accepted
            .iter()
            .map(|(id, name)| (*id, *name))
            .collect();
        for (id, name) in left {
            if !self.acked.contains(&id) {
                let key = if let LaneName::Keyed(key) = name {
                    Some(key)
                } else {
                    None
                };
                self.accept(id, key);
            }
        }
    }

    fn finish(&mut self) {
        self.note();
        if self.settings.hands_back {
            // The waiting messages of a lane are handed back. A head that runs or is being lettered
            // goes on.
            self.lanes.retain(|_, lane| {
                let kept = usize::from(!matches!(lane.state, State::ReadyAt(_)));
                self.handed_back.extend(lane.messages.drain(kept..));
                kept > 0
            });
        }
        while !self.lanes.is_empty() {
            self.dispatch();
            self.end_one();
            self.make_letters_durable();
            self.dispatch();
            self.now += 100;
        }
        while !self.acks_asked.is_empty() {
            self.answer_ack();
        }
    }

    fn evidence(&self) -> Evidence {
        let events = || self.history.records.iter().map(|record| record.event);
        let done = events().filter(|e| {
            matches!(
                e,
                Event::End {
                    outcome: Outcome::Ok,
                    ..
                }
            )
        });
        let dead = events().filter(|e| matches!(e, Event::Dead { .. }));
        let coalesced = events().filter(|e| matches!(e, Event::Coalesced { .. }));
        let mut drained = Drained {
            position: self.history.records.len(),
            accepted: self.accepted.len() as u64,
            done: done.count() as u64,
            dead_lettered: dead.count() as u64,
            discarded: self.discarded.len() as u64,
            coalesced: coalesced.count() as u64,
            handed_back: self.handed_back.len() as u64,
            ..Drained::default()
        };
        if self.epoch > 1 {
            // One report cannot cover two processes.
            drained = Drained {
                position: drained.position,
                ..Drained::default()
            };
        }
        let stopped = self.history.time(self.faults_stopped);
        let mut evidence = Evidence::new()
            .quiescent(self.history.time(self.now))
            .max_attempts(self.settings.max_attempts)
            .concurrency(self.settings.concurrency)
            .backoff(Duration::from_millis(BACKOFF_MS))
            .faults(stopped, Duration::from_secs(3600))
            .discarded(self.discarded.iter().copied())
            .handed_back(self.handed_back.iter().copied())
            .drained(drained);
        if self.settings.coalesces {
            evidence = evidence.coalescing();
        }
        evidence
    }
}
