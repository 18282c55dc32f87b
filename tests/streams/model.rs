//! Random streams, keys, concurrencies and patterns of readiness against what must hold after every
//! poll; and random errors in random places, released in random order.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;

use futures::Stream;
use keylane_stream::{KeyedStreamExt, OnError};
use proptest::prelude::*;

use crate::support::{Fate, Scenario, Script, State, Task, catch};

/// Above this much work a poll may stop early.
const SHORT_POLL: usize = 60;

#[derive(Clone, Debug)]
enum Step {
    /// The consumer asks, woken or not.
    Ask,
    /// It asks as long as it is woken or gets answers, at most so often.
    Run(usize),
    Release(usize),
    /// All that is in flight has to wait once less, at the same time.
    ReleaseAll,
    Feed(usize),
    Disturb,
}

#[derive(Clone, Debug)]
struct Plan {
    scripts: Vec<Script>,
    fed: usize,
    concurrency: usize,
    lane_capacity: usize,
    capacity: Option<usize>,
    ordered: bool,
    steps: Vec<Step>,
}

/// Up to `most` elements.
fn scripts(
    key: impl Strategy<Value = u64>,
    waits: impl Strategy<Value = u32>,
    fate: impl Strategy<Value = Fate>,
    most: usize,
) -> impl Strategy<Value = Vec<Script>> {
    let script = (key, waits, fate).prop_map(|(key, waits, fate)| Script { key, waits, fate });
    proptest::collection::vec(script, 0..most)
}

/// Elements some of which panic.
fn panicking(keys: u64) -> impl Strategy<Value = Vec<Script>> {
    let fate = prop_oneof![
        40 => Just(Fate::Fine),
        1 => Just(Fate::ThrowsInKey),
        1 => Just(Fate::ThrowsInF),
        1 => Just(Fate::ThrowsInPoll),
    ];
    // One key in three is the hot one.
    let key = prop_oneof![1 => Just(0), 2 => 0..keys];
    let waits = prop_oneof![3 => Just(0), 3 => Just(1), 1 => 2..4_u32];
    scripts(key, waits, fate, 150)
}

/// Elements some of which fail.
fn failing() -> impl Strategy<Value = Vec<Script>> {
    let fate = prop_oneof![
        12 => Just(Fate::Fine),
        1 => Just(Fate::Fails),
        1 => Just(Fate::FailsInSource),
    ];
    scripts(0..8_u64, 0..3_u32, fate, 60)
}

fn plans() -> impl Strategy<Value = Plan> {
    let step = prop_oneof![
        4 => Just(Step::Ask),
        3 => (1..20_usize).prop_map(Step::Run),
        8 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::ReleaseAll),
        2 => (1..20_usize).prop_map(Step::Feed),
        1 => Just(Step::Disturb),
    ];
    let limits = (
        prop_oneof![1..4_usize, 1..=64_usize],
        prop_oneof![1..4_usize, Just(64)],
        proptest::option::of(1..40_usize),
    );
    let scripts = prop_oneof![1..5_u64, 1..=100_u64].prop_flat_map(panicking);
    let steps = proptest::collection::vec(step, 0..150);
    (scripts, 0..150_usize, limits, any::<bool>(), steps).prop_map(
        |(scripts, fed, limits, ordered, steps)| Plan {
            scripts,
            fed,
            concurrency: limits.0,
            lane_capacity: limits.1,
            capacity: limits.2,
            ordered,
            steps,
        },
    )
}

/// What the consumer has seen.
struct Seen {
    answered: Vec<usize>,
    over: bool,
}

struct Harness<'a> {
    plan: &'a Plan,
    scenario: Scenario,
    task: Task,
    stream: Pin<Box<dyn Stream<Item = Result<usize, usize>>>>,
    seen: Seen,
}

impl<'a> Harness<'a> {
    fn new(plan: &'a Plan) -> Self {
        let scenario = Scenario::new(plan.scripts.clone());
        scenario.feed(plan.fed);
        // Two types of the same shape.
        macro_rules! limited {
            ($adapter:expr) => {{
                let adapter = $adapter.lane_capacity(plan.lane_capacity);
                match plan.capacity {
                    Some(capacity) => Box::pin(adapter.capacity(capacity)),
                    None => Box::pin(adapter),
                }
            }};
        }
        let (source, key, start) = (scenario.stream(), scenario.key(), scenario.start());
        let stream: Pin<Box<dyn Stream<Item = _>>> = if plan.ordered {
            limited!(source.map_keyed(plan.concurrency, key, start))
        } else {
            limited!(source.map_keyed_unordered(plan.concurrency, key, start))
        };
        Self {
            plan,
            scenario,
            task: Task::new(),
            stream,
            seen: Seen {
                answered: Vec::new(),
                over: false,
            },
        }
    }

    /// One poll, and what must hold behind it. True: ask again.
    fn ask(&mut self) -> bool {
        let work = |state: &mut State| state.pulled + state.finished.len();
        let before = self.scenario.see(work);
        self.task.was_woken();
        let polled = catch(|| self.task.next(&mut self.stream));
        let short = self.scenario.see(work) - before < SHORT_POLL;
        let woken = self.task.was_woken();
        let (threw, ready) = match polled {
            Err(_) => (true, true),
            Ok(Poll::Pending) => (false, false),
            Ok(Poll::Ready(None)) => {
                self.seen.over = true;
                (false, false)
            }
            Ok(Poll::Ready(Some(answer))) => {
                self.seen.answered.push(answer.unwrap());
                (false, true)
            }
        };
        self.check_safety();
        if !threw {
            self.check_lanes();
            if !woken && !self.seen.over && (short || !ready) {
                self.check_progress(ready);
            }
        }
        woken || ready
    }

    /// Nothing is lost, swapped or run twice, and every limit holds.
    fn check_safety(&self) {
        let Seen { answered, over } = &self.seen;
        self.scenario.see(|state| {
            assert_eq!(state.wrong, [""; 0], "in the scenario");
            assert!(state.dropped.is_empty(), "{:?} dropped", state.dropped);
            assert!(state.most <= self.plan.concurrency);
            let mut last = HashMap::new();
            for n in answered {
                assert!(state.finished.contains(n), "{n} was not finished");
                let before = last.insert(state.scripts[*n].key, *n);
                assert!(before < Some(*n), "{n} is answered after {before:?}");
            }
            if self.plan.ordered {
                let kept = (0..state.pulled).filter(|n| !state.lost.contains(n));
                assert!(kept.zip(answered).all(|(n, answer)| n == *answer));
            }
            let inside = state.pulled - state.lost.len() - answered.len();
            assert!(inside + self.gone(state, answered.len()) <= self.capacity());
            if *over {
                assert_eq!((inside, state.pulled), (0, state.scripts.len()));
            }
        });
    }

    fn capacity(&self) -> usize {
        let every_lane = self.plan.concurrency * self.plan.lane_capacity;
        self.plan.capacity.unwrap_or(every_lane)
    }

    /// Elements that panicked behind one that is not answered, and keep their place in the order.
    fn gone(&self, state: &State, answered: usize) -> usize {
        if !self.plan.ordered {
            return 0;
        }
        let mut all = (0..state.pulled).filter(|n| !state.lost.contains(n));
        let Some(next) = all.nth(answered) else {
            return 0;
        };
        let had_place = |n: &&usize| state.scripts[**n].fate != Fate::ThrowsInKey;
        let behind = state.lost.iter().filter(|n| **n > next);
        behind.filter(had_place).count()
    }

    /// Elements of each key that are inside and have not started.
    fn parked(state: &State) -> HashMap<u64, usize> {
        let mut parked = HashMap::new();
        for n in (0..state.pulled).filter(|n| !state.lost.contains(n)) {
            if !state.started.contains(&n) {
                *parked.entry(state.scripts[n].key).or_default() += 1;
            }
        }
        parked
    }

    /// What has not started waits for its key, and for nothing else.
    fn check_lanes(&self) {
        self.scenario.see(|state| {
            for (key, parked) in Self::parked(state) {
                let flies = state.flying.values().any(|flying| flying.key == key);
                assert!(flies, "{parked} of key {key} wait for no element in flight");
                // Behind the one in flight; one more may be held.
                assert!(parked <= self.plan.lane_capacity);
            }
        });
    }

    /// Nothing that could move stands still.
    fn check_progress(&self, ready: bool) {
        let Seen { answered, .. } = &self.seen;
        self.scenario.see(|state| {
            if !ready {
                let stuck = state.flying.values().any(|flying| flying.waits == 0);
                assert!(!stuck, "a future that is ready was not polled");
            }
            if state.flying.len() >= self.plan.concurrency
                || state.pulled == state.fed
                || state.pulled == state.scripts.len()
            {
                return;
            }
            let held = Self::parked(state);
            let held = held
                .values()
                .any(|parked| *parked == self.plan.lane_capacity);
            let inside = state.pulled - state.lost.len() - answered.len();
            // The answer of this poll was there as well when it decided.
            let before = answered.len() - usize::from(ready);
            let gone = self.gone(state, before);
            let full = inside + usize::from(ready) + gone >= self.capacity();
            let takeable = if self.plan.ordered {
                let kept = (0..state.pulled).filter(|n| !state.lost.contains(n));
                let next = kept.skip(answered.len());
                next.take_while(|n| state.finished.contains(n)).count()
            } else {
                state.finished.len() - answered.len()
            };
            let slow = ready && takeable + 1 >= self.plan.concurrency;
            assert!(
                held || full || slow,
                "{} of {} in flight, and an element can be pulled",
                state.flying.len(),
                self.plan.concurrency
            );
        });
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask => _ = self.ask(),
            Step::Run(most) => _ = (0..*most).all(|_| self.ask()),
            Step::Release(which) => {
                let flying = self.scenario.in_flight();
                if !flying.is_empty() {
                    self.scenario.release(flying[which % flying.len()]);
                }
            }
            Step::ReleaseAll => {
                let flying = self.scenario.in_flight();
                flying.into_iter().for_each(|n| self.scenario.release(n));
            }
            Step::Feed(elements) => self.scenario.feed(*elements),
            Step::Disturb => self.scenario.disturb(),
        }
    }

    /// All elements are there, and the oldest in flight is released whenever nothing moves.
    fn finish(&mut self) {
        let (scenario, task) = (self.scenario.clone(), self.task.clone());
        scenario.feed(usize::MAX / 2);
        let oldest = |_| 0;
        run_out(&scenario, &task, oldest, || match self.ask() {
            _ if self.seen.over => Asked::Over,
            true => Asked::Again,
            false => Asked::Waits,
        });
        assert!(scenario.in_flight().is_empty());
        assert_eq!(task.next(&mut self.stream), Poll::Ready(None));
    }
}

/// What the consumer found.
enum Asked {
    /// It is to ask again at once.
    Again,
    /// It is to ask again when it is woken.
    Waits,
    Over,
}

/// Asks to the end, but only when the task was woken or had an answer. Where nothing moves, releases
/// one that is in flight: `pick` of so many.
fn run_out(
    scenario: &Scenario,
    task: &Task,
    mut pick: impl FnMut(usize) -> usize,
    mut ask: impl FnMut() -> Asked,
) {
    let mut again = true;
    loop {
        if std::mem::take(&mut again) || task.was_woken() {
            match ask() {
                Asked::Over => return,
                Asked::Again => again = true,
                Asked::Waits => {}
            }
        } else {
            let flying = scenario.in_flight();
            assert!(!flying.is_empty(), "nothing is left that would wake it");
            scenario.release(flying[pick(flying.len())]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(500)))]

    #[test]
    fn the_adapters_lose_nothing_and_let_nothing_wait(plan in plans()) {
        let mut harness = Harness::new(&plan);
        for step in &plan.steps {
            harness.step(step);
        }
        harness.finish();
    }
}

/// What an element that may fail answers.
type Answer = Result<usize, usize>;

fn answer_of(n: usize, script: &Script) -> Answer {
    match script.fate {
        Fate::Fine => Ok(n),
        _ => Err(n),
    }
}

/// Polls to the end; `picks` chooses what is released when nothing moves.
fn answers_of(
    scenario: &Scenario,
    picks: &[usize],
    mut poll: impl FnMut(&Task) -> Poll<Option<Answer>>,
) -> Vec<Answer> {
    let (task, mut picks, mut answers) = (Task::new(), picks.iter().cycle(), Vec::new());
    let pick = |count| picks.next().unwrap() % count;
    run_out(scenario, &task, pick, || match poll(&task) {
        Poll::Ready(Some(answer)) => {
            answers.push(answer);
            Asked::Again
        }
        Poll::Ready(None) => Asked::Over,
        Poll::Pending => Asked::Waits,
    });
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(300)))]

    #[test]
    fn errors_stop_or_do_not(
        scripts in failing(),
        concurrency in 1..=16_usize,
        lane_capacity in 1..6_usize,
        picks in proptest::collection::vec(any::<usize>(), 1..40),
        goes_on in any::<bool>(),
    ) {
        let on_error = if goes_on { OnError::Continue } else { OnError::Stop };
        let all: Vec<Answer> = scripts.iter().enumerate().map(|(n, s)| answer_of(n, s)).collect();
        let first = all.iter().position(Result::is_err);
        let stops_at = first.filter(|_| !goes_on);
        let scenario = || {
            let scenario = Scenario::new(scripts.clone());
            scenario.feed(scripts.len());
            scenario
        };
        let is_clean = |scenario: &Scenario| scenario.see(|state| {
            assert!(state.flying.is_empty() && state.wrong.is_empty(), "{:?}", state.wrong);
        });

        // In input order it does not matter who is ready when.
        let ordered = scenario();
        let mut stream = ordered
            .try_feed()
            .try_map_keyed(concurrency, ordered.key(), ordered.start())
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        let answers = answers_of(&ordered, &picks, |task| task.next(&mut stream));
        prop_assert_eq!(&answers, &all[..stops_at.map_or(all.len(), |at| at + 1)]);
        is_clean(&ordered);

        let unordered = scenario();
        let mut stream = unordered
            .try_feed()
            .try_map_keyed_unordered(concurrency, unordered.key(), unordered.start())
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        let mut answers = answers_of(&unordered, &picks, |task| task.next(&mut stream));
        is_clean(&unordered);
        if stops_at.is_some() {
            let errors = answers.iter().filter(|answer| answer.is_err()).count();
            prop_assert!(errors == 1 && answers.last().unwrap().is_err());
            prop_assert!(answers.iter().all(|answer| all.contains(answer)));
        } else {
            answers.sort_by_key(|answer| answer.unwrap_or_else(|n| n));
            prop_assert_eq!(&answers, &all);
        }

        let done = scenario();
        let mut start = done.start();
        let mut outcome = Ok(());
        let mut future = done
            .try_feed()
            .try_for_each_keyed(concurrency, done.key(), move |element| {
                let work = start(element);
                Box::pin(async move { work.await.map(|_| ()) })
            })
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        answers_of(&done, &picks, |task| task.poll(&mut future).map(|done| {
            outcome = done;
            None
        }));
        is_clean(&done);
        prop_assert_eq!(outcome.is_err(), first.is_some());
        if stops_at.is_none() {
            let started = scripts.iter().filter(|s| s.fate != Fate::FailsInSource).count();
            prop_assert_eq!(done.started().len(), started);
        }
    }
}
