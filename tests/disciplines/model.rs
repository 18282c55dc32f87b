//! Both disciplines against a naive model: a few lists per key, and the rules as they are told.
//!
//! After every step the engine runs until nothing moves without time; then what was started, what each
//! receipt has said and how deep each key is are compared. A step of time is longer than a retry waits and
//! no multiple of a gap's patience, so that no two moments meet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::discipline::{Coalesce, OnGap};
use keylane::{Context, OnExhausted, Retry};
use keylane_testkit::scenario::{
    Held, Receipts, assert_no_engine_panics, assert_nothing_left, cases, check_waits, paused,
    quiet, within,
};
use keylane_testkit::{History, Id, Key, LetterBox, ScriptError};
use proptest::prelude::*;

use crate::sequence::contiguous;
use crate::support::{Job, Jobs, jobs, word};

const RETRY: u64 = 100;
const STEP: u64 = 400;
const PATIENCE: u64 = 1_000;
const KEYS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    First,
    Latest,
    Merge,
    Sequence(OnGap, usize),
}

#[derive(Clone, Debug)]
enum Step {
    Send(Key, u64),
    Finish(Key, bool),
    Time,
    Pause(Key),
    Resume(Key),
    Skip(Key),
    Purge(Key),
}

#[derive(Clone, Debug)]
struct Plan {
    how: How,
    shares: bool,
    steps: Vec<Step>,
    end: u8,
}

fn plans() -> impl Strategy<Value = Plan> {
    let then = prop_oneof![
        Just(OnGap::Skip),
        Just(OnGap::DeadLetter),
        Just(OnGap::Halt)
    ];
    let sequence = (then, 1_usize..5).prop_map(|(then, early)| How::Sequence(then, early));
    let how = prop_oneof![
        Just(How::First),
        Just(How::Latest),
        Just(How::Merge),
        sequence.clone(),
        sequence
    ];
    let key = 1..=KEYS;
    let step = prop_oneof![
        8 => (key.clone(), 1_u64..9).prop_map(|(key, version)| Step::Send(key, version)),
        5 => (key.clone(), proptest::bool::weighted(0.7)).prop_map(|(key, ok)| Step::Finish(key, ok)),
        3 => Just(Step::Time),
        1 => key.clone().prop_map(Step::Pause),
        2 => key.clone().prop_map(Step::Resume),
        1 => key.clone().prop_map(Step::Skip),
        1 => key.prop_map(Step::Purge),
    ];
    let steps = proptest::collection::vec(step, 1..60);
    (how, any::<bool>(), steps, 0_u8..3).prop_map(|(how, shares, steps, end)| Plan {
        how,
        shares,
        steps,
        end,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(600), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_disciplines_are_their_naive_model(plan in plans()) {
        paused().block_on(run(plan));
    }
}

/// A message, and those that settle with it.
#[derive(Clone, Debug)]
struct Message {
    id: Id,
    version: u64,
    joined: Vec<Id>,
}

/// One key, as the rules tell it.
#[derive(Debug, Default)]
struct Naive {
    running: Option<(Message, u32)>,
    /// Failed once, and due then.
    backoff: Option<(Message, u64)>,
    line: VecDeque<Message>,
    early: BTreeMap<u64, Message>,
    next: u64,
    missed_since: Option<u64>,
    /// Nothing but a missing version is waited for.
    in_gap: bool,
    halted: bool,
    /// Its gap was given up waiting for while it could not halt.
    paused: bool,
}

struct Model {
    how: How,
    shares: bool,
    now: u64,
    keys: BTreeMap<Key, Naive>,
    started: Vec<(Id, u32)>,
    outcomes: BTreeMap<Id, &'static str>,
}

impl Model {
    fn settle(&mut self, message: Message, word: &'static str) {
        let joined = match (word, self.shares) {
            ("done", true) => "shared",
            ("done", false) => "merged",
            ("failed" | "dead-lettered", true) => word,
            _ => "unmerged",
        };
        for id in message.joined {
            self.outcomes.insert(id, joined);
        }
        let before = self.outcomes.insert(message.id, word);
        assert_eq!(before, None, "the model settles {} twice", message.id);
    }

    fn key(&mut self, key: Key) -> &mut Naive {
        self.keys.entry(key).or_insert_with(|| Naive {
            next: 1,
            ..Naive::default()
        })
    }

    fn send(&mut self, key: Key, id: Id, version: u64) {
        let message = Message {
            id,
            version,
            joined: Vec::new(),
        };
        let (how, now, shares) = (self.how, self.now, self.shares);
        let naive = self.key(key);
        match how {
            How::Sequence(then, bound) => {
                if version < naive.next || naive.early.contains_key(&version) {
                    self.settle(message, "duplicate");
                } else if version == naive.next {
                    naive.next += 1;
                    naive.line.push_back(message);
                    naive.line_up(now);
                } else {
                    naive.early.insert(version, message);
                    naive.missed_since.get_or_insert(now);
                    if naive.early.len() > bound && (then != OnGap::Halt || naive.in_gap) {
                        self.give_up(key, then);
                    }
                }
            }
            _ if naive.line.is_empty() => naive.line.push_back(message),
            How::First if shares => {
                naive.line[0].joined.push(id);
            }
            How::First => self.settle(message, "declined"),
            How::Latest | How::Merge => {
                let old = naive.line.pop_front().unwrap();
                let mut message = message;
                if how == How::Merge || shares {
                    message.joined = old.joined;
                    message.joined.push(old.id);
                } else {
                    self.settle(old, "superseded");
                }
                self.key(key).line.push_back(message);
            }
        }
        self.go_on(key);
    }

    fn give_up(&mut self, key: Key, then: OnGap) {
        let now = self.now;
        let naive = self.key(key);
        match then {
            OnGap::Skip => {
                naive.next = *naive.early.keys().next().unwrap();
                naive.line_up(now);
            }
            OnGap::DeadLetter => {
                naive.missed_since = None;
                for (_, message) in std::mem::take(&mut naive.early) {
                    self.settle(message, "dead-lettered");
                }
            }
            _ => naive.halted = true,
        }
    }

    /// Starts what may start, and otherwise finds out what the key waits for.
    fn go_on(&mut self, key: Key) {
        let (how, now) = (self.how, self.now);
        let naive = self.key(key);
        let free = naive.running.is_none() && naive.backoff.is_none();
        let may_start = free && !naive.paused;
        if may_start && let Some(message) = naive.line.pop_front() {
            (naive.in_gap, naive.halted) = (false, false);
            let id = message.id;
            naive.running = Some((message, 1));
            self.started.push((id, 1));
            return;
        }
        let in_gap = may_start && !naive.early.is_empty();
        if in_gap && !naive.in_gap {
            let is_over = naive.missed_since.unwrap() + PATIENCE <= now;
            naive.halted = is_over && matches!(how, How::Sequence(OnGap::Halt, _));
        }
        naive.in_gap = in_gap;
        naive.halted &= in_gap;
    }

    fn finish(&mut self, key: Key, ok: bool) {
        let now = self.now;
        let naive = self.key(key);
        let Some((message, attempt)) = naive.running.take() else {
            return;
        };
        match (ok, attempt) {
            (true, _) => self.settle(message, "done"),
            (false, 1) => naive.backoff = Some((message, now + RETRY)),
            (false, _) => self.settle(message, "failed"),
        }
        self.go_on(key);
    }

    fn time(&mut self, until: u64) {
        loop {
            let mut first: Option<(u64, Key, bool)> = None;
            for (key, naive) in &self.keys {
                let due = naive
                    .backoff
                    .as_ref()
                    .filter(|_| !naive.paused)
                    .map(|(_, at)| *at);
                let gap = naive.missed_since.map(|since| since + PATIENCE);
                // One that has been given up waiting for stays as it is.
                let gap = gap.filter(|at| *at > self.now);
                let moments = [
                    due.map(|at| (at, *key, true)),
                    gap.map(|at| (at, *key, false)),
                ];
                first = moments.into_iter().flatten().chain(first).min();
            }
            let Some((at, key, is_retry)) = first.filter(|(at, ..)| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(at);
            if is_retry {
                self.retry(key);
            } else if let How::Sequence(then, _) = self.how {
                if then != OnGap::Halt || self.key(key).in_gap {
                    self.give_up(key, then);
                }
                self.go_on(key);
            }
        }
    }

    fn retry(&mut self, key: Key) {
        let naive = self.key(key);
        let (message, _) = naive.backoff.take().unwrap();
        let id = message.id;
        naive.running = Some((message, 2));
        self.started.push((id, 2));
    }

    fn pause(&mut self, key: Key) {
        self.key(key).paused = true;
        self.go_on(key);
    }

    fn resume(&mut self, key: Key) {
        let now = self.now;
        let naive = self.key(key);
        if naive.paused {
            naive.paused = false;
            if naive.backoff.as_ref().is_some_and(|(_, at)| *at <= now) {
                return self.retry(key);
            }
        } else if naive.halted {
            naive.halted = false;
            naive.missed_since = Some(now);
        }
        self.go_on(key);
    }

    fn skip(&mut self, key: Key) {
        let now = self.now;
        let naive = self.key(key);
        if naive.running.is_some() {
            return;
        }
        if let Some((message, _)) = naive.backoff.take() {
            self.settle(message, "failed");
        } else if naive.in_gap {
            naive.next = *naive.early.keys().next().unwrap();
            naive.line_up(now);
        } else if let Some(message) = naive.line.pop_front() {
            self.settle(message, "failed");
        }
        self.go_on(key);
    }

    fn purge(&mut self, key: Key) {
        let naive = self.key(key);
        let held = naive.backoff.take().map(|(message, _)| message);
        let line = std::mem::take(&mut naive.line);
        let early = std::mem::take(&mut naive.early).into_values();
        naive.missed_since = None;
        let all: Vec<_> = held.into_iter().chain(line).chain(early).collect();
        for message in all {
            self.settle(message, "purged");
        }
        self.go_on(key);
    }

    /// Handlers succeed at once from here on, and the operator decides no more.
    fn end(&mut self, end: u8) {
        for key in 1..=KEYS {
            if end == 2 {
                if let Some((message, _)) = self.key(key).running.take() {
                    self.settle(message, "interrupted");
                }
            } else if end == 1 {
                if let Some((message, _)) = self.key(key).running.take() {
                    self.settle(message, "done");
                }
            } else {
                self.drain(key);
            }
            let naive = self.key(key);
            let held = naive.backoff.take().map(|(message, _)| message);
            let line = std::mem::take(&mut naive.line);
            let early = std::mem::take(&mut naive.early).into_values();
            let all: Vec<_> = held.into_iter().chain(line).chain(early).collect();
            for message in all {
                self.settle(message, "handed back");
            }
        }
    }

    fn drain(&mut self, key: Key) {
        loop {
            let naive = self.key(key);
            if naive.running.is_some() {
                self.finish(key, true);
            } else if naive.paused {
                return;
            } else if naive.backoff.is_some() {
                self.retry(key);
            } else if naive.in_gap && !naive.halted {
                let How::Sequence(then, _) = self.how else {
                    unreachable!()
                };
                self.give_up(key, then);
                self.go_on(key);
            } else {
                return;
            }
        }
    }
}

impl Naive {
    fn line_up(&mut self, now: u64) {
        while let Some(message) = self.early.remove(&self.next) {
            self.next = message.version + 1;
            self.line.push_back(message);
            self.missed_since = Some(now);
        }
        if self.early.is_empty() {
            self.missed_since = None;
        }
    }

    fn depth(&self) -> usize {
        let joined = |message: &Message| 1 + message.joined.len();
        let line: usize = self.line.iter().map(joined).sum();
        usize::from(self.running.is_some() || self.backoff.is_some()) + line + self.early.len()
    }
}

/// Handlers that wait for the plan to answer them, by their keys.
#[derive(Clone)]
struct Handlers {
    held: Held<Key, bool>,
    history: History,
    /// They succeed at once.
    opened: Arc<AtomicBool>,
}

impl Handlers {
    fn new() -> Self {
        Self {
            held: Held::new(),
            history: History::new(),
            opened: Arc::default(),
        }
    }

    async fn handle(self, context: Context<Key>, job: Job) -> Result<Id, ScriptError> {
        if self.opened.load(Ordering::Relaxed) {
            return Ok(job.id);
        }
        self.history.start(job.id, context.attempt(), 0);
        match self.held.wait(job.key).await {
            Some(true) => Ok(job.id),
            _ => Err(ScriptError::Error(job.id)),
        }
    }

    fn open(&self) {
        self.opened.store(true, Ordering::Relaxed);
        self.held.answer_all(true);
    }
}

fn spawn(plan: &Plan, handlers: &Handlers) -> Jobs {
    let letters = LetterBox::new(&History::new());
    let mut builder = jobs()
        .retry(Retry::fixed(Duration::from_millis(RETRY)).max_attempts(2))
        .on_exhausted(OnExhausted::Discard)
        .overflow_sink(letters.sink(|job: &Job| job.id));
    builder = match plan.how {
        How::First => builder.coalesce(Coalesce::keep_first()),
        How::Latest => builder.coalesce(Coalesce::keep_latest()),
        How::Merge => builder.coalesce(Coalesce::merge(|_: &Job, new: &Job| new.clone())),
        How::Sequence(then, early) => builder.sequence(
            contiguous()
                .from(1)
                .early(early)
                .gap_timeout(Duration::from_millis(PATIENCE), then),
        ),
    };
    if plan.shares && !matches!(plan.how, How::Sequence(..)) {
        builder = builder.share_answers::<Id>();
    }
    let handlers = handlers.clone();
    builder
        .spawn(move |context: Context<Key>, job: Job| handlers.clone().handle(context, job))
        .unwrap()
}

async fn run(plan: Plan) {
    let handlers = Handlers::new();
    let jobs = spawn(&plan, &handlers);
    let began = tokio::time::Instant::now();
    let now = || began.elapsed().as_millis() as u64;
    let mut model = Model {
        how: plan.how,
        shares: plan.shares,
        now: 0,
        keys: BTreeMap::new(),
        started: Vec::new(),
        outcomes: BTreeMap::new(),
    };
    let mut receipts = Receipts::new();
    let mut outcomes = BTreeMap::new();
    for step in &plan.steps {
        match *step {
            Step::Send(key, version) => {
                let id = (receipts.len() + outcomes.len()) as Id + 1;
                let job = Job {
                    key,
                    id,
                    version,
                    parts: Vec::new(),
                };
                receipts.insert(id, jobs.submit(job).await.unwrap());
                model.send(key, id, version);
            }
            Step::Finish(key, ok) => {
                handlers.held.answer(&key, ok);
                model.finish(key, ok);
            }
            Step::Time => tokio::time::sleep(Duration::from_millis(STEP)).await,
            Step::Pause(key) => {
                jobs.lane(&key).pause();
                model.pause(key);
            }
            Step::Resume(key) => {
                let _ = jobs.lane(&key).resume();
                model.resume(key);
            }
            Step::Skip(key) => {
                let _ = jobs.lane(&key).skip();
                model.skip(key);
            }
            Step::Purge(key) => {
                jobs.lane(&key).purge();
                model.purge(key);
            }
        }
        quiet().await;
        model.time(now());
        let answers = receipts.collect().into_iter();
        outcomes.extend(answers.map(|(id, answer)| (id, word(id, &answer))));
        assert_eq!(outcomes, model.outcomes, "{step:?}");
        assert_eq!(handlers.history.attempts(), model.started, "{step:?}");
        let mut halted = 0;
        for (key, naive) in &model.keys {
            let depth = jobs.inspect(key).map(|view| view.depth);
            assert_eq!(
                depth.unwrap_or(0),
                naive.depth(),
                "{step:?} {key} {naive:?}"
            );
            let stays = naive.depth() > 0 || naive.paused;
            assert_eq!(depth.is_some(), stays, "{step:?} {key} {naive:?}");
            halted += usize::from(naive.halted);
        }
        assert_eq!(jobs.stats().halted, halted, "{step:?}");
        check_waits(&jobs, model.keys.keys());
    }
    let ending = match plan.end {
        0 => jobs.drain(),
        1 => jobs.close(),
        _ => jobs.abort(),
    };
    if plan.end < 2 {
        handlers.open();
    }
    model.end(plan.end);
    let report = within(async { ending.await }).await;
    let answers = receipts.collect().into_iter();
    outcomes.extend(answers.map(|(id, answer)| (id, word(id, &answer))));
    assert_eq!(outcomes, model.outcomes, "at the end");
    assert!(receipts.is_empty(), "without an answer: {receipts:?}");
    let count = |words: &[&str]| {
        let is = |word: &&&str| words.contains(*word);
        model.outcomes.values().filter(is).count() as u64
    };
    assert_eq!(report.accepted, model.outcomes.len() as u64);
    assert_eq!(report.done, count(&["done"]));
    assert_eq!(report.duplicates, count(&["duplicate"]));
    assert_eq!(report.handed_back, count(&["handed back", "interrupted"]));
    let others = count(&[
        "failed",
        "dead-lettered",
        "purged",
        "declined",
        "superseded",
        "merged",
    ]);
    let others = others + count(&["unmerged", "shared"]);
    assert_eq!(
        report.discarded + report.dead_lettered + report.coalesced,
        others
    );
    assert_nothing_left(&jobs);
    assert_no_engine_panics();
    let stats = jobs.stats();
    assert_eq!((stats.capacity_left, stats.paused), (65_536, 0));
}
