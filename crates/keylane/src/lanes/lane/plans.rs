//! One lane under each plan, against what must hold after every step. No runtime, no engine: the
//! test is the ready queue, the runner, the timers and the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::testing::{Message, TestGate, rules};
use super::{
    Change, Decision, Due, Effects, Hold, Lane, Left, Out, Phase, Spares, Store, WaitReason,
};
use crate::clock::Instant;
use crate::discipline::{Mode, OnGap, Start};
use crate::lanes::item::Item;
use crate::lanes::rules::{
    AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor,
};
use crate::rate::Gcra;

type TestLane = Lane<Message, Message, TestGate>;
type TestEffects = Effects<Message, Message, TestGate>;

/// What happens to the lane, if it can.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A message of this version comes, may wait this long for its start, and must.
    Offer {
        version: u64,
        lifetime: Option<u64>,
        delay: u64,
    },
    /// A runner takes what is in the ready queue.
    Take,
    /// The head settles.
    Finish {
        at_once: bool,
    },
    /// The head failed: it is tried again, or stops the lane.
    Fail {
        halts: bool,
    },
    /// A batch is over, and its members failed.
    FailMembers,
    /// Milliseconds pass, and timers go off.
    Pass(u64),
    Decide(Decision),
    /// The version store answers.
    Answer(Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let decision = prop::sample::select(vec![
        Decision::Pause,
        Decision::Resume,
        Decision::Skip,
        Decision::RetryNow,
        Decision::Purge,
    ]);
    let offer = (1..8_u64, prop::option::of(1..30_u64), 0..4_u64);
    let step = prop_oneof![
        8 => offer.prop_map(|(version, lifetime, delay)| Step::Offer {
            version,
            lifetime,
            delay: if delay == 3 { 10 } else { 0 },
        }),
        8 => Just(Step::Take),
        6 => any::<bool>().prop_map(|at_once| Step::Finish { at_once }),
        1 => any::<bool>().prop_map(|halts| Step::Fail { halts }),
        1 => Just(Step::FailMembers),
        3 => (0..25_u64).prop_map(Step::Pass),
        2 => decision.prop_map(Step::Decide),
        2 => prop::option::of(0..3_u64).prop_map(Step::Answer),
    ];
    prop::collection::vec(step, 0..80)
}

fn plan() -> impl Strategy<Value = PlanRules> {
    let survivor = prop::sample::select(vec![Survivor::First, Survivor::Latest, Survivor::Merged]);
    let mode = prop::sample::select(vec![Mode::Contiguous, Mode::Monotonic]);
    let on_gap = prop::sample::select(vec![OnGap::Skip, OnGap::DeadLetter, OnGap::Halt]);
    let start = prop::sample::select(vec![Start::At(1), Start::FirstSeen]);
    prop_oneof![
        Just(PlanRules::Fifo),
        (survivor, any::<bool>())
            .prop_map(|(survivor, shares)| PlanRules::Coalesce(CoalesceRules { survivor, shares })),
        (1..4_usize, 0..2_u64).prop_map(|(max, linger)| PlanRules::Batch(BatchRules {
            max,
            linger: Duration::from_millis(5 * linger),
        })),
        (mode, start, on_gap, 1..4_usize, any::<bool>()).prop_map(
            |(mode, start, on_gap, early, is_stored)| PlanRules::Sequence(SequenceRules {
                mode,
                start,
                early,
                patience: Duration::from_millis(20),
                on_gap,
                is_stored,
            })
        ),
    ]
}

fn all_rules() -> impl Strategy<Value = Rules> {
    let at_limit = prop::sample::select(vec![AtLimit::Park, AtLimit::DropOldest, AtLimit::Refuse]);
    let rate = prop::option::of(Just(Gcra::new(8_000_000, 2)));
    (plan(), at_limit, rate, any::<bool>()).prop_map(|(plan, at_limit, rate, expires)| {
        let sequences = matches!(plan, PlanRules::Sequence(_));
        Rules {
            at_limit,
            rate,
            expires: expires && !sequences,
            ..rules(plan)
        }
    })
}

/// What is out of the lane.
#[derive(Debug)]
enum Queued {
    Lane,
    Message(Message),
}

/// The lane of one key, and all that is around it.
struct World {
    rules: Rules,
    spares: Spares<Message>,
    lane: Option<TestLane>,
    /// In the ready queue.
    queued: Option<Queued>,
    /// With a runner.
    running: Option<Message>,
    timers: BTreeSet<(Instant, u8, Instant)>,
    now: Instant,
    next: u32,
    /// Every message that was accepted, and why it left if it did.
    messages: BTreeMap<u32, Option<&'static str>>,
    /// Messages whose obligation another one has.
    merged: BTreeSet<u32>,
    started: Vec<Message>,
    passed: Option<u64>,
    tat: u64,
    oracle: u64,
    halted: i32,
    paused: i32,
    full: i32,
    /// What the version store was asked.
    asked: Option<Store>,
}

impl World {
    fn new(rules: Rules) -> Self {
        let now = rules.epoch + Duration::from_secs(1);
        Self {
            rules,
            spares: Spares::new(),
            lane: None,
            queued: None,
            running: None,
            timers: BTreeSet::new(),
            now,
            next: 0,
            messages: BTreeMap::new(),
            merged: BTreeSet::new(),
            started: Vec::new(),
            passed: None,
            tat: 0,
            oracle: 0,
            halted: 0,
            paused: 0,
            full: 0,
            asked: None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Offer {
                version,
                lifetime,
                delay,
            } => self.offer(version, lifetime, delay),
            Step::Take => self.take(),
            Step::Finish { at_once } => self.finish(at_once),
            Step::Fail { halts } => self.fail(halts),
            Step::FailMembers => self.fail_members(),
            Step::Pass(millis) => self.pass(millis),
            Step::Decide(decision) => self.decide(decision),
            Step::Answer(last) => self.answer(last),
        }
    }

    fn offer(&mut self, version: u64, lifetime: Option<u64>, delay: u64) {
        self.next += 1;
        let after = |millis| self.now + Duration::from_millis(millis);
        let sequences = self.rules.sequence().is_some();
        let message = Message {
            id: self.next,
            version: if sequences { version } else { 0 },
            not_before: (delay > 0).then(|| after(delay)),
            expires_at: lifetime
                .filter(|_| self.rules.expires)
                .map(|millis| self.rules.stamp(after(millis))),
            ..Message::default()
        };
        self.messages.insert(self.next, None);
        let (tat, passed) = (self.tat, self.passed);
        let lane = self.lane.get_or_insert_with(|| TestLane::empty(tat));
        let (recall, mut effects) = (|| passed, Effects::new());
        lane.offer(
            message,
            self.now,
            &self.rules,
            &self.spares,
            recall,
            &mut effects,
        );
        self.apply(effects);
    }

    fn take(&mut self) {
        match self.queued.take() {
            None => {}
            Some(Queued::Message(message)) => self.start(message),
            Some(Queued::Lane) => {
                let lane = self.lane.as_mut().expect("a lane that is queued is there");
                let mut effects = Effects::new();
                lane.next(self.now, &self.rules, &mut effects);
                self.apply(effects);
                if let Some(Queued::Message(message)) = self.queued.take() {
                    for started in [&message].into_iter().chain(&message.members) {
                        let is_late = started.is_expired(self.rules.stamp(self.now));
                        let is_early = started.not_before.is_some_and(|at| at > self.now);
                        assert!(!is_late && !is_early, "it starts at the wrong time");
                    }
                    self.start(message);
                }
            }
        }
    }

    /// The handler starts.
    fn start(&mut self, message: Message) {
        assert!(self.running.is_none(), "two messages of one key run");
        let is_retry = self.started.iter().any(|before| before.id == message.id);
        if !is_retry {
            self.check_start(&message);
            self.started.push(message.clone());
        }
        self.running = Some(message);
    }

    fn check_start(&mut self, message: &Message) {
        if let Some(limiter) = &self.rules.rate {
            let now = self.rules.stamp(self.now);
            assert_eq!(limiter.ask(&mut self.oracle, now), Ok(()), "above the rate");
        }
        let last = self.started.last();
        match &self.rules.plan {
            PlanRules::Fifo | PlanRules::Coalesce(_) | PlanRules::Batch(_) => {
                let last = last.map(|last| {
                    let members = last.members.iter().map(|member| member.id);
                    members.max().unwrap_or(0).max(last.id)
                });
                // Members that failed come back, and are older than those that started after them.
                let came_back = self.started.iter().any(|before| {
                    let mut members = before.members.iter();
                    members.any(|member| member.id == message.id)
                });
                assert!(came_back || last < Some(message.id), "it was overtaken");
                let ids: Vec<_> = message.members.iter().map(|member| member.id).collect();
                assert!(ids.is_sorted(), "a batch is in order");
            }
            PlanRules::Sequence(_) => {
                let last = last.map(|last| last.version);
                assert!(last < Some(message.version), "versions start in order");
            }
        }
        if let Some(batch) = self.rules.batch() {
            assert!(message.members.len() < batch.max, "a batch is too large");
        }
    }

    fn finish(&mut self, at_once: bool) {
        let Some(head) = self.running.take() else {
            return;
        };
        self.settle_started(head);
        let lane = self
            .lane
            .as_mut()
            .expect("a lane whose head is out is there");
        let mut effects = Effects::new();
        if self.rules.batch().is_some() {
            let mut ended = Effects::new();
            lane.end_batch(Vec::new(), &self.rules, &self.spares, &mut ended);
            self.apply(ended);
        }
        let lane = self.lane.as_mut().expect("its head is still out");
        lane.advance(self.now, &self.rules, at_once, &mut effects);
        self.apply(effects);
    }

    fn settle_started(&mut self, head: Message) {
        self.settle(head.id, "done");
        for merged in head.merged {
            self.settle(merged, "merged");
        }
        for member in head.members {
            self.settle_started(member);
        }
    }

    fn fail(&mut self, halts: bool) {
        let Some(mut head) = self.running.take() else {
            return;
        };
        for member in std::mem::take(&mut head.members) {
            self.settle_started(member);
        }
        let lane = self
            .lane
            .as_mut()
            .expect("a lane whose head is out is there");
        if self.rules.batch().is_some() {
            let mut ended = Effects::new();
            lane.end_batch(Vec::new(), &self.rules, &self.spares, &mut ended);
            self.apply(ended);
        }
        let hold = match halts {
            true => Hold::Halt,
            false => Hold::Retry(self.now + Duration::from_millis(10)),
        };
        let lane = self.lane.as_mut().expect("its head is still out");
        let mut effects = Effects::new();
        lane.hold(Box::new(head), hold, &mut effects);
        self.apply(effects);
    }

    fn fail_members(&mut self) {
        let Some(head) = &mut self.running else {
            return;
        };
        let members = std::mem::take(&mut head.members);
        if members.is_empty() {
            return;
        }
        let lane = self
            .lane
            .as_mut()
            .expect("a lane whose head is out is there");
        let mut effects = Effects::new();
        lane.end_batch(members, &self.rules, &self.spares, &mut effects);
        self.apply(effects);
    }

    fn pass(&mut self, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        while let Some((at, kind, armed)) = self.timers.first().copied()
            && at <= until
        {
            self.timers.pop_first();
            self.now = self.now.max(at);
            let due = match kind {
                0 => Due::Backoff(armed),
                1 => Due::Wait(armed),
                2 => Due::Expiry(self.rules.stamp(armed)),
                _ => Due::Gap(armed),
            };
            if let Some(lane) = &mut self.lane {
                let mut effects = Effects::new();
                lane.wake(due, self.now, &self.rules, &self.spares, &mut effects);
                self.apply(effects);
            }
        }
        self.now = until;
    }

    fn decide(&mut self, decision: Decision) {
        if decision == Decision::Pause {
            let tat = self.tat;
            self.lane.get_or_insert_with(|| TestLane::empty(tat));
        }
        let Some(lane) = &mut self.lane else { return };
        let mut effects = Effects::new();
        let decided = lane.decide(decision, self.now, &self.rules, &self.spares, &mut effects);
        if decided.is_ok() {
            self.apply(effects);
        }
    }

    fn answer(&mut self, last: Option<u64>) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let Some(lane) = &mut self.lane else { return };
        let mut effects = Effects::new();
        match asked {
            Store::Load => lane.learn(last, self.now, &self.rules, &self.spares, &mut effects),
            Store::Record(version) => lane.recorded(version, &mut effects),
        }
        self.apply(effects);
    }

    /// The engine's part.
    fn apply(&mut self, effects: TestEffects) {
        let change = |change| match change {
            Change::None => 0,
            Change::Up => 1,
            Change::Down => -1,
        };
        self.halted += change(effects.halted);
        self.paused += change(effects.paused);
        self.full += change(effects.full);
        if effects.removes {
            let lane = self.lane.take().expect("it was there");
            let left = lane.parked_len() + usize::from(lane.first_early().is_some());
            assert_eq!(left, 0, "a lane goes with messages in it");
            let memory = lane.memory();
            self.passed = self.passed.max(memory.version);
            self.tat = memory.tat;
            assert!(self.running.is_none() && self.queued.is_none());
        }
        let rare = effects.rare.map_or_else(Default::default, |rare| *rare);
        for (message, why) in effects.left {
            self.settle_left(message, why);
        }
        for body in rare.bodies {
            assert!(self.merged.insert(body), "{body} is merged twice");
        }
        if let Some((head, _)) = rare.taken {
            self.settle_started(*head);
        }
        if rare.store.is_some() {
            self.asked = rare.store;
        }
        match effects.wake {
            Some(Due::Backoff(at)) => self.arm(at, 0, at),
            Some(Due::Wait(at)) => self.arm(at, 1, at),
            Some(Due::Expiry(_) | Due::Gap(_)) => unreachable!("they have fields of their own"),
            None => {}
        }
        if let Some(at) = effects.expires_at {
            let at = self.rules.moment(at, self.now);
            self.arm(at, 2, at);
        }
        if let Some((since, until)) = rare.gap_until {
            self.arm(until, 3, since);
        }
        let queued = match effects.out {
            Out::Nothing => None,
            Out::Lane { .. } => Some(Queued::Lane),
            Out::Message(message) => Some(Queued::Message(message)),
            Out::Head { head, .. } => Some(Queued::Message(*head)),
        };
        if queued.is_some() {
            assert!(self.queued.is_none(), "the lane is queued twice");
            assert!(self.running.is_none(), "the lane is queued and runs");
            self.queued = queued;
        }
        if let Some((waited, mut newcomer)) = rare.merge {
            let body = newcomer.absorb(waited);
            assert!(self.merged.insert(body));
            let tat = self.tat;
            let lane = self.lane.get_or_insert_with(|| TestLane::empty(tat));
            let (now, mut effects) = (self.now, Effects::new());
            lane.offer_merged(newcomer, now, &self.rules, &self.spares, &mut effects);
            self.apply(effects);
        }
    }

    fn arm(&mut self, at: Instant, kind: u8, armed: Instant) {
        self.timers.insert((at, kind, armed));
    }

    fn settle_left(&mut self, message: Message, why: Left) {
        let (is_full, has_plan) = (
            matches!(why, Left::Displaced | Left::Refused),
            |plan: bool| assert!(plan, "{why:?} under {:?}", self.rules.plan),
        );
        has_plan(!is_full || self.rules.at_limit != AtLimit::Park);
        match why {
            Left::Declined | Left::Superseded => {
                has_plan(matches!(self.rules.plan, PlanRules::Coalesce(_)));
            }
            Left::Duplicate | Left::BehindGap => has_plan(self.rules.sequence().is_some()),
            Left::Expired => assert!(message.is_expired(self.rules.stamp(self.now))),
            Left::Displaced | Left::Refused | Left::Skipped | Left::Purged => {}
        }
        self.settle(message.id, "left");
        for merged in message.merged {
            self.settle(merged, "left with another");
        }
    }

    fn settle(&mut self, id: u32, why: &'static str) {
        let before = self.messages.insert(id, Some(why));
        assert_eq!(before, Some(None), "{id} settles twice, or never came");
    }

    /// What holds after every step.
    fn check(&self) {
        let out = self.running.iter().chain(match &self.queued {
            Some(Queued::Message(message)) => Some(message),
            _ => None,
        });
        let outside: usize = out
            .map(|message| 1 + message.merged.len() + message.members.len())
            .sum();
        let (mut inside, mut held) = (0, 0);
        if let Some(lane) = &self.lane {
            inside = lane.depth(&self.rules);
            let is_out = self.queued.is_some() || self.running.is_some();
            assert_eq!(lane.is_out(), is_out, "{:?}", lane.state());
            if let Some(head) = lane.head() {
                held = 1 + head.merged.len();
            }
            assert_eq!(lane.is_paused(), self.paused == 1);
            assert_eq!(
                i32::from(lane.is_halted()),
                self.halted,
                "{:?}",
                lane.state()
            );
            assert_eq!(lane.gate().is_some(), self.full == 1);
            self.check_wait(lane);
        } else {
            assert!(self.queued.is_none() && self.running.is_none());
            assert_eq!((self.paused, self.halted, self.full), (0, 0, 0));
        }
        // The head and what is out with it are counted as one message, and its batch.
        let is_out = matches!(
            self.lane.as_ref().map(TestLane::phase),
            Some(Phase::Ready | Phase::Running)
        );
        let members = self.running.iter().chain(match &self.queued {
            Some(Queued::Message(message)) => Some(message),
            _ => None,
        });
        let members: usize = members.map(|message| message.members.len()).sum();
        let heads = usize::from(is_out) + members + usize::from(held > 0);
        let open = self.messages.values().filter(|why| why.is_none()).count();
        let parked = inside - heads;
        assert_eq!(parked + held + outside, open, "a message is lost");
    }

    /// A lane that waits has something that wakes it.
    fn check_wait(&self, lane: &TestLane) {
        let super::State::Waiting { reason, until } = lane.state() else {
            return;
        };
        let armed = |kind, at| self.timers.contains(&(at, kind, at));
        match reason {
            WaitReason::Rate | WaitReason::Delay | WaitReason::Linger => {
                let until = until.expect("it waits for a time");
                assert!(armed(1, until), "nothing wakes it from {reason:?}");
            }
            WaitReason::Paused => assert!(lane.is_paused()),
            WaitReason::Load | WaitReason::Record => assert!(self.asked.is_some()),
            WaitReason::Gap => {
                let is_armed = self.timers.iter().any(|(_, kind, _)| *kind == 3);
                assert!(is_armed, "nothing ends the wait for a version");
            }
            WaitReason::HaltedGap => {}
            WaitReason::Empty => panic!("an empty lane stays"),
        }
    }

    /// Everything comes to its end, and nothing is left.
    fn run_out(&mut self) {
        for _ in 0..1_000 {
            if self.lane.is_none() {
                break;
            }
            self.decide(Decision::Resume);
            self.answer(Some(0));
            self.take();
            self.finish(false);
            self.pass(25);
            if self.halted == 1 {
                self.decide(Decision::Skip);
            }
            self.check();
        }
        assert!(self.lane.is_none(), "{:?} does not end", self.lane);
        let open = self.messages.values().filter(|why| why.is_none()).count();
        assert_eq!(open, 0, "messages are left");
    }
}

impl Message {
    fn absorb(&mut self, waited: Self) -> u32 {
        self.absorb_older(waited)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn under_every_plan_a_lane_keeps_its_promises(rules in all_rules(), steps in steps()) {
        let mut world = World::new(rules);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.run_out();
    }
}
