//! Random lives: sends with lifetimes and delays, failures, rates, and an operator with every
//! instrument, judged by rules that hold at each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::discipline::Delayed;
use keylane::{Rate, Retry};
use keylane_testkit::Act;
use keylane_testkit::scenario::{Message, check_waits, outcome, paused, settle, within};
use proptest::prelude::*;

use crate::support::{CAPACITY, Recorder, Refusal, at, dispatcher};

#[derive(Clone, Debug)]
struct Plan {
    concurrency: usize,
    /// Milliseconds from start to start, and the burst.
    rate: Option<(u64, u32)>,
    retry: u64,
    attempts: u32,
    delayed: Delayed,
    steps: Vec<Step>,
    close: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        key: u64,
        life: Option<u64>,
        delay: u64,
        work: Work,
    },
    Operate(u64, Operation),
    Pass(u64),
}

/// What a handler does: how many milliseconds it takes, and whether it succeeds.
#[derive(Clone, Copy, Debug)]
struct Work {
    takes: u64,
    ok: bool,
}

impl Work {
    fn act(self) -> Act {
        let act = if self.ok { Act::ok() } else { Act::error() };
        match self.takes {
            0 => act,
            takes => act.sleeps(Duration::from_millis(takes)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Pause,
    Resume,
    Skip,
    Purge,
    RetryNow,
}

fn steps() -> impl Strategy<Value = Step> {
    let takes = prop_oneof![Just(0), 1..30_u64];
    let work = (takes, prop::bool::weighted(0.6)).prop_map(|(takes, ok)| Work { takes, ok });
    let life = prop::option::of(0..80_u64);
    let delay = prop_oneof![3 => Just(0), 1 => 1..60_u64];
    let operation = prop::sample::select(vec![
        Operation::Pause,
        Operation::Resume,
        Operation::Resume,
        Operation::Skip,
        Operation::Purge,
        Operation::RetryNow,
    ]);
    prop_oneof![
        6 => (0..3_u64, life, delay, work)
            .prop_map(|(key, life, delay, work)| Step::Send { key, life, delay, work }),
        3 => (0..3_u64, operation).prop_map(|(key, what)| Step::Operate(key, what)),
        4 => (1..60_u64).prop_map(Step::Pass),
    ]
}

fn plans() -> impl Strategy<Value = Plan> {
    (
        prop_oneof![1..3_usize, Just(100)],
        prop::option::of((5..50_u64, 1..4_u32)),
        (1..40_u64, 1..4_u32),
        any::<bool>(),
        prop::collection::vec(steps(), 0..60),
        any::<bool>(),
    )
        .prop_map(
            |(concurrency, rate, (retry, attempts), passes, steps, close)| Plan {
                concurrency,
                rate,
                retry,
                attempts,
                delayed: if passes { Delayed::Pass } else { Delayed::Wait },
                steps,
                close,
            },
        )
}

/// What is known of a message.
#[derive(Clone, Copy, Debug)]
struct Sent {
    key: u64,
    at: u64,
    life: Option<u64>,
    delay: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(300), max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn every_rule_holds_at_every_step(plan in plans()) {
        paused().block_on(live(plan));
    }
}

type Told = Arc<Mutex<BTreeMap<u64, (u64, &'static str)>>>;

async fn live(plan: Plan) {
    let recorder = Recorder::new();
    let works: Arc<Mutex<BTreeMap<u64, Work>>> = Arc::default();
    let lives: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let mut builder = dispatcher()
        .concurrency(plan.concurrency)
        .quantum(2)
        .delayed(plan.delayed)
        .retry(Retry::fixed(Duration::from_millis(plan.retry)).max_attempts(plan.attempts))
        .expire_by({
            let lives = Arc::clone(&lives);
            move |message| {
                lives
                    .lock()
                    .unwrap()
                    .get(&message.id)
                    .copied()
                    .map(Duration::from_millis)
            }
        });
    if let Some((period, burst)) = plan.rate {
        builder = builder.rate_per_key(Rate::per(1, Duration::from_millis(period)).burst(burst));
    }
    let dispatcher = {
        let works = Arc::clone(&works);
        builder
            .spawn(recorder.handler(move |id, _| works.lock().unwrap()[&id].act()))
            .unwrap()
    };
    let mut sent: BTreeMap<u64, Sent> = BTreeMap::new();
    let told = Told::default();
    let mut paused = BTreeSet::new();
    for step in &plan.steps {
        let before = recorder.calls().len();
        match *step {
            Step::Send {
                key,
                life,
                delay,
                work,
            } => {
                let id = sent.len() as u64;
                works.lock().unwrap().insert(id, work);
                if let Some(life) = life {
                    lives.lock().unwrap().insert(id, life);
                }
                let delayed = Duration::from_millis(delay);
                let receipt = dispatcher
                    .submit_when(Message::new(key, id), delayed)
                    .await
                    .unwrap();
                sent.insert(
                    id,
                    Sent {
                        key,
                        at: recorder.now(),
                        life,
                        delay,
                    },
                );
                let (recorder, told) = (recorder.clone(), Arc::clone(&told));
                tokio::spawn(async move {
                    let answer: Result<u64, Refusal> = receipt.await;
                    let old = told
                        .lock()
                        .unwrap()
                        .insert(id, (recorder.now(), outcome(&answer)));
                    assert_eq!(old, None, "{id} was answered twice");
                });
            }
            Step::Operate(key, operation) => {
                let lane = dispatcher.lane(&key);
                match operation {
                    Operation::Pause => {
                        lane.pause();
                        paused.insert(key);
                    }
                    Operation::Resume => {
                        assert_eq!(lane.resume().is_ok(), paused.remove(&key), "{step:?}");
                    }
                    Operation::Skip => drop(lane.skip()),
                    Operation::Purge => drop(lane.purge()),
                    Operation::RetryNow => drop(lane.retry_now()),
                }
            }
            Step::Pass(ms) => at(&recorder, recorder.now() + ms).await,
        }
        settle().await;
        assert_eq!(dispatcher.stats().paused, paused.len());
        check_waits(&dispatcher, &[0, 1, 2]);
        for call in &recorder.calls()[before..] {
            let key = sent[&call.ids[0]].key;
            assert!(
                !paused.contains(&key),
                "{call:?} started, and its key is paused"
            );
        }
        for key in 0..3 {
            let told = told.lock().unwrap();
            let waits = |(id, sent): &(&u64, &Sent)| {
                let is_here =
                    plan.delayed == Delayed::Wait || sent.at + sent.delay <= recorder.now();
                sent.key == key && !told.contains_key(id) && is_here
            };
            let depth = dispatcher.inspect(&key).map_or(0, |view| view.depth);
            assert_eq!(
                depth,
                sent.iter().filter(waits).count(),
                "the depth of {key}"
            );
        }
        let stats = dispatcher.stats();
        let unsettled = sent.len() - told.lock().unwrap().len();
        assert_eq!(stats.capacity_left + unsettled, CAPACITY + stats.stalled);
    }
    if !plan.close {
        for key in paused {
            dispatcher.lane(&key).resume().unwrap();
        }
    }
    let report = within(async {
        if plan.close {
            dispatcher.close().await
        } else {
            dispatcher.drain().await
        }
    })
    .await;
    settle().await;
    recorder.judge(&dispatcher, &report, CAPACITY);
    assert_eq!(report.accepted, sent.len() as u64);
    assert!(plan.close || report.handed_back == 0, "{report:?}");
    rules(&plan, &recorder, &sent, &told.lock().unwrap());
}

/// What must be true of a whole life.
fn rules(
    plan: &Plan,
    recorder: &Recorder,
    sent: &BTreeMap<u64, Sent>,
    told: &BTreeMap<u64, (u64, &'static str)>,
) {
    let calls = recorder.calls();
    let mut attempts: BTreeMap<u64, u32> = BTreeMap::new();
    for call in &calls {
        let id = call.ids[0];
        let Sent {
            at, life, delay, ..
        } = sent[&id];
        let before = attempts.entry(id).or_default();
        assert_eq!(call.attempt, *before + 1, "{call:?}");
        *before = call.attempt;
        assert!(call.at >= at + delay, "{call:?} was early: {:?}", sent[&id]);
        assert!(
            life.is_none_or(|life| call.at < at + life),
            "{call:?}: {:?}",
            sent[&id]
        );
    }
    assert_eq!(told.len(), sent.len(), "each has its answer");
    for (id, (when, what)) in told {
        let Sent { at, life, .. } = sent[id];
        let attempts = attempts.get(id).copied().unwrap_or_default();
        if *what == "expired" {
            let due = at + life.expect("only what has a lifetime expires");
            let is_in_time = *when == due || (*when <= due + 1 && life == Some(0));
            assert!(
                attempts > 0 || is_in_time,
                "{id} expired at {when}, and not at {due}"
            );
        }
        assert!(
            *what != "done" || attempts > 0,
            "{id} is done without an attempt"
        );
    }
    for key in 0..3 {
        let firsts: Vec<_> = calls
            .iter()
            .filter(|call| call.attempt == 1 && sent[&call.ids[0]].key == key)
            .collect();
        if plan.delayed == Delayed::Wait {
            assert!(
                firsts.is_sorted_by_key(|call| call.ids[0]),
                "the order of {key}"
            );
        }
        let Some((period, burst)) = plan.rate else {
            continue;
        };
        for (n, from) in firsts.iter().enumerate() {
            for (m, to) in firsts.iter().enumerate().skip(n) {
                let most = u64::from(burst) + (to.at - from.at) / period;
                assert!(((m - n) as u64) < most, "the rate of {key}: {firsts:?}");
            }
        }
    }
}
