//! One lane under each plan, against what must hold after every step. No runtime, no engine: the
//! test is the ready queue, the runner, the timers and the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::super::gate::{Gate, Opening};
use super::plan::Sequencer;
use super::testing::{Message, TestEffects, TestGate, effects as effects_of, rare, rules};
use super::{
    Change, Decision, Due, Hold, Lane, Left, Out, Phase, Spares, Stall, State, Store, Taken, Timer,
    Undecidable, WaitReason,
};
use crate::clock::Instant;
use crate::discipline::{Mode, OnGap, Start};
use crate::lanes::item::Item;
use crate::lanes::rules::{
    AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor, TICK,
};
use crate::rate::Gcra;

type TestLane = Lane<Message, Message, TestGate>;

/// What happens to the lane, if it can.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A message of this version comes, may wait this long for its start, and must. If the lane is
    /// full, its sender waits at the gate, unless the message was on its way.
    Offer {
        version: u64,
        lifetime: Option<u64>,
        delay: u64,
        on_its_way: bool,
    },
    /// A runner takes what is in the ready queue.
    Take,
    /// The handler of the head returns `Pending`.
    Suspend,
    /// The head settles.
    Finish,
    /// The head failed: it is tried again, or stops the lane.
    Fail {
        halts: bool,
    },
    /// A batch is over, and its members failed.
    FailMembers,
    /// Milliseconds pass, and timers go off: at their time, or less than a tick before it.
    Pass(u64, bool),
    /// The next timer goes off long before its time: the wheel holds no longer one.
    GoOff,
    Decide(Decision),
    /// The end of what is in the lane now is marked.
    Mark,
    /// The version store answers.
    Answer(Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let decision = prop::sample::select(vec![
        Decision::Pause,
        Decision::Resume,
        Decision::Skip,
        Decision::RetryNow,
        Decision::Replace,
        Decision::Purge,
    ]);
    let offer = (1..8_u64, prop::option::of(1..30_u64), 0..4_u64, 0..8_u8);
    let step = prop_oneof![
        8 => offer.prop_map(|(version, lifetime, delay, hurry)| Step::Offer {
            version,
            lifetime,
            delay: if delay == 3 { 10 } else { 0 },
            on_its_way: hurry == 0,
        }),
        8 => Just(Step::Take),
        1 => Just(Step::Suspend),
        6 => Just(Step::Finish),
        1 => any::<bool>().prop_map(|halts| Step::Fail { halts }),
        1 => Just(Step::FailMembers),
        3 => (0..25_u64, any::<bool>()).prop_map(|(millis, early)| Step::Pass(millis, early)),
        1 => Just(Step::GoOff),
        2 => decision.prop_map(Step::Decide),
        1 => Just(Step::Mark),
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
    /// The first message of a lane, which has not met what came since.
    Entered(Message),
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
    /// Its time, what it is, what it was armed for, and its number.
    timers: BTreeSet<(Instant, u8, Instant, u32)>,
    armed: u32,
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
    /// Timers of heads in backoff that find another state than they were armed for.
    stale: i32,
    /// Messages that are no load.
    stalled: BTreeSet<u32>,
    /// Messages that were in the ready queue and came back.
    returned: BTreeSet<u32>,
    /// Whether the lane held something back, or was stalled, before the step.
    held: bool,
    was_stalled: bool,
    waited_for_version: bool,
    gate: Option<TestGate>,
    /// Messages that came to a full lane and had no permit.
    uninvited: usize,
    /// Whether the lane has waited for a batch to grow, since the last one started.
    lingered: bool,
    /// What was accepted up to then must leave the lane.
    mark: Option<u32>,
    /// The decision that is carried out, if one is, and the state in which it found the lane.
    deciding: Option<(Decision, Phase, bool)>,
    /// What the version store was asked.
    asked: Option<Store>,
    /// Whether it was this lane that asked.
    is_asked: bool,
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
            armed: 0,
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
            stale: 0,
            stalled: BTreeSet::new(),
            returned: BTreeSet::new(),
            held: false,
            was_stalled: false,
            waited_for_version: false,
            gate: None,
            uninvited: 0,
            lingered: false,
            mark: None,
            deciding: None,
            asked: None,
            is_asked: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Offer {
                version,
                lifetime,
                delay,
                on_its_way,
            } => self.offer(version, lifetime, delay, on_its_way),
            Step::Take => self.take(),
            Step::Suspend => self.suspend(),
            Step::Finish => self.finish(),
            Step::Fail { halts } => self.fail(halts),
            Step::FailMembers => self.fail_members(),
            Step::Pass(millis, early) => self.pass(millis, early),
            Step::GoOff => {
                if let Some(timer) = self.timers.pop_first() {
                    self.go_off(timer);
                }
            }
            Step::Decide(decision) => self.decide(decision),
            Step::Mark => self.mark(),
            Step::Answer(last) => self.answer(last),
        }
    }

    fn offer(&mut self, version: u64, lifetime: Option<u64>, delay: u64, on_its_way: bool) {
        if let Some(gate) = &self.gate {
            match gate.available().checked_sub(1) {
                Some(less) if !on_its_way => gate.0.set(less),
                _ if on_its_way => self.uninvited += 1,
                _ => return,
            }
        }
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
        if self.lane.is_none() && self.rules.enters() && delay == 0 {
            return self.enter(message);
        }
        let (tat, passed) = (self.tat, self.passed);
        let lane = self.lane.get_or_insert_with(|| TestLane::empty(tat));
        let lingers = lane.wait_reason() == Some(WaitReason::Linger);
        let was_stalled = lane.is_stalled();
        let before = Before::of(lane, &message, &self.rules);
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let effects = effects_of(|done| lane.offer(message, now, rules, spares, || passed, done));
        before.check(lane, &effects, &self.rules);
        let is_waiting = matches!(lane.state(), State::Waiting { .. });
        assert!(effects.holds || effects.merges() || effects.removes || !is_waiting);
        if let Out::Lane { .. } = effects.out {
            assert!(lane.parked_len() > 0, "it is asked for nothing");
        }
        if lingers && let Some(batch) = self.rules.batch() {
            let is_full = lane.parked_len() >= batch.max.min(self.rules.capacity);
            assert_eq!(is_waiting, !is_full, "it waits until the batch is full");
        }
        let is_flooded = lane.depth(&self.rules) > self.rules.capacity;
        let is_no_load = is_flooded || (was_stalled && lane.is_stalled());
        self.apply(effects);
        if is_no_load && let Some(lane) = &mut self.lane {
            let newest = lane.parked_mut().next_back();
            let is_marked = newest.is_none_or(|newest| self.stalled.contains(&newest.id));
            assert!(is_marked, "it came to where nothing goes on, and is load");
        }
    }

    /// The first message of a lane goes into the ready queue itself.
    fn enter(&mut self, message: Message) {
        assert!(self.queued.is_none() && self.running.is_none());
        self.lane = Some(TestLane::new());
        self.queued = Some(Queued::Entered(message));
    }

    fn mark(&mut self) {
        let Some(lane) = &mut self.lane else { return };
        let depth = lane.depth(&self.rules);
        let holds = lane.set_watermark(u64::from(self.next), &self.rules);
        let is_out = self.queued.is_some() || self.running.is_some();
        assert_eq!(holds, depth > 0 || is_out);
        if holds {
            self.mark = Some(self.next);
        }
        assert_eq!(lane.has_watermark(), self.mark.is_some());
    }

    /// As the engine does it: whether the lane has drained up to its mark.
    fn check_mark(&mut self, effects: &TestEffects) {
        let Some(lane) = &mut self.lane else { return };
        let starts = match &effects.out {
            Out::Message(message) => Some(message),
            _ => None,
        };
        let drained = match effects.removes {
            true => lane.has_watermark(),
            false => lane.passes_watermark(starts),
        };
        let Some(mark) = self.mark else {
            assert!(!drained, "there is no mark");
            return;
        };
        // It has not said yet what is next.
        let is_out = matches!(lane.phase(), Phase::Ready | Phase::Running);
        let is_past = if is_out && !effects.removes {
            starts.is_some_and(|message| message.id > mark)
        } else {
            let merging = rare(effects).merge.as_ref().map(|pair| &pair.1);
            let mut all = lane.parked().chain(lane.head()).chain(merging);
            all.all(|message| message.id > mark)
        };
        if drained {
            self.mark = None;
        }
        // Versions need not come in the order of acceptance.
        let is_ordered = self.rules.sequence().is_none();
        assert!(
            drained == is_past || !is_ordered,
            "drained, or not: {drained}"
        );
    }

    fn suspend(&mut self) {
        if self.running.is_some() {
            let lane = self.lane.as_mut().expect("its head is out");
            lane.suspend(self.now, 1, 0);
        }
    }

    /// A message that was in the ready queue goes back into its lane, if it may not start now.
    fn reconsider(&mut self, mut message: Message) {
        let lane = self.lane.as_mut().expect("its head is out");
        let is_retry = self.started.iter().any(|before| before.id == message.id);
        let until = message.not_before.filter(|at| *at > self.now);
        let may_start = !lane.is_paused() && until.is_none();
        let effects = if may_start {
            return self.start(message);
        } else if is_retry {
            effects_of(|done| lane.hold(Box::new(message), Hold::Paused(self.now), done))
        } else {
            let mut items = std::mem::take(&mut message.members);
            items.insert(0, message);
            self.returned.extend(items.iter().map(|item| item.id));
            effects_of(|done| lane.take_back(items, until, &self.spares, done))
        };
        self.apply(effects);
    }

    fn take(&mut self) {
        match self.queued.take() {
            None => {}
            Some(Queued::Message(message)) => self.reconsider(message),
            Some(Queued::Entered(message)) => self.begin(message),
            Some(Queued::Lane) => {
                let lane = self.lane.as_mut().expect("a lane that is queued is there");
                let effects = effects_of(|done| lane.next(self.now, &self.rules, done));
                self.apply(effects);
                self.start_chosen();
            }
        }
    }

    /// The lane has been asked, and what it has chosen starts.
    fn start_chosen(&mut self) {
        let Some(Queued::Message(message)) = self.queued.take() else {
            return;
        };
        self.check_lingered(&message);
        self.check_members(&message);
        for started in [&message].into_iter().chain(&message.members) {
            let is_late = started.is_expired(self.rules.stamp(self.now));
            let is_early = started.not_before.is_some_and(|at| at > self.now);
            assert!(!is_late && !is_early, "it starts at the wrong time");
        }
        self.start(message);
    }

    /// The first message of a lane meets what has come since.
    fn begin(&mut self, message: Message) {
        if message.is_expired(self.rules.stamp(self.now)) {
            return self.expire(message);
        }
        let lane = self.lane.as_mut().expect("its head is out");
        if lane.is_paused() {
            return self.reconsider(message);
        }
        if !self.rules.rejoins() || lane.is_alone() {
            return self.start(message);
        }
        let (first, newest) = (message.id, lane.parked_mut().next_back().map(|new| new.id));
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let effects = effects_of(|done| lane.rejoin(message, now, rules, spares, done));
        if let PlanRules::Coalesce(coalesce) = &rules.plan {
            let stays = match coalesce.survivor {
                Survivor::First => Some(first),
                Survivor::Latest => newest,
                Survivor::Merged => panic!("two would become one while others come"),
            };
            let waits = lane.oldest_parked().filter(|_| lane.parked_len() == 1);
            let chosen = match &effects.out {
                Out::Message(chosen) => Some(chosen),
                _ => waits,
            };
            let expired =
                |(left, why): &(Message, Left)| Some(left.id) == stays && *why == Left::Expired;
            let is_gone = effects.left.as_slice().iter().any(expired);
            let chosen = chosen.map(|chosen| chosen.id);
            assert!(is_gone || chosen == stays, "{chosen:?} is left of the two");
        }
        self.apply(effects);
        self.start_chosen();
    }

    /// A head that was in the ready queue is too late.
    fn expire(&mut self, message: Message) {
        assert!(message.merged.is_empty() && message.members.is_empty());
        self.settle(message.id, "expired");
        let lane = self.lane.as_mut().expect("its head is out");
        let effects = effects_of(|done| lane.advance(self.now, &self.rules, done));
        self.apply(effects);
    }

    /// A batch takes all that may start, up to its size.
    fn check_members(&self, head: &Message) {
        let lane = self.lane.as_ref().expect("its head is out");
        if let Some(batch) = self.rules.batch()
            && let Some(next) = lane.oldest_parked()
        {
            let is_full = head.members.len() + 1 == batch.max;
            let may_start = next.not_before.is_none_or(|at| at <= self.now);
            let may_start = may_start && !next.is_expired(self.rules.stamp(self.now));
            assert!(is_full || !may_start, "it was left behind");
        }
    }

    /// A batch that is not full has waited for more.
    fn check_lingered(&self, head: &Message) {
        let Some(batch) = self.rules.batch() else {
            return;
        };
        let lane = self.lane.as_ref().expect("its head is out");
        let parked = 1 + head.members.len() + lane.parked_len();
        let is_full = parked >= batch.max.min(self.rules.capacity);
        assert!(
            is_full || batch.linger.is_zero() || self.lingered,
            "it did not wait for more"
        );
    }

    /// The handler starts.
    fn start(&mut self, message: Message) {
        self.lingered = false;
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

    fn finish(&mut self) {
        let Some(head) = self.running.take() else {
            return;
        };
        self.settle_started(head);
        let lane = self
            .lane
            .as_mut()
            .expect("a lane whose head is out is there");
        if self.rules.batch().is_some() {
            let ended =
                effects_of(|done| lane.end_batch(Vec::new(), &self.rules, &self.spares, done));
            self.apply(ended);
        }
        let lane = self.lane.as_mut().expect("its head is still out");
        let rules = &self.rules;
        let effects = effects_of(|done| lane.advance(self.now, rules, done));
        if rules.has_discipline() {
            let comes_back = lane.parked_len() > 0 && !rules.starts_early();
            let is_asked = matches!(effects.out, Out::Lane { .. });
            assert!(
                is_asked == comes_back || lane.is_paused(),
                "{:?}",
                effects.out
            );
        }
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
            let ended =
                effects_of(|done| lane.end_batch(Vec::new(), &self.rules, &self.spares, done));
            self.apply(ended);
        }
        let hold = match halts {
            true => Hold::Halt,
            // No two of a key at the same moment, of which a timer tells one from the other.
            false => {
                let apart = Duration::from_nanos(u64::from(self.armed));
                Hold::Retry(self.now + Duration::from_millis(10) + apart)
            }
        };
        let lane = self.lane.as_mut().expect("its head is still out");
        let effects = effects_of(|done| lane.hold(Box::new(head), hold, done));
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
        let effects = effects_of(|done| lane.end_batch(members, &self.rules, &self.spares, done));
        self.apply(effects);
    }

    fn pass(&mut self, millis: u64, early: bool) {
        let until = self.now + Duration::from_millis(millis);
        let early = if early { 9 * TICK / 10 } else { Duration::ZERO };
        while let Some(timer) = self.timers.first().copied()
            && timer.0 <= until + early
        {
            self.timers.pop_first();
            self.now = self.now.max(timer.0 - early);
            self.go_off(timer);
        }
        self.now = self.now.max(until);
        let stamp = self.rules.stamp(self.now);
        let is_late = |queued: &mut Queued| match queued {
            Queued::Entered(message) => message.is_expired(stamp),
            Queued::Lane | Queued::Message(_) => false,
        };
        if let Some(Queued::Entered(message)) = self.queued.take_if(is_late) {
            self.expire(message);
        }
    }

    fn go_off(&mut self, (time, kind, armed, _): (Instant, u8, Instant, u32)) {
        let due = match kind {
            0 => Due::Backoff(armed),
            1 => Due::Wait(armed),
            2 => Due::Expiry(self.rules.stamp(armed)),
            _ => Due::Gap(armed),
        };
        let Some(lane) = &mut self.lane else {
            self.stale -= i32::from(kind == 0);
            return;
        };
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let mut effects = effects_of(|done| lane.wake(due, now, rules, spares, done));
        let armed_again = match due {
            Due::Backoff(_) | Due::Wait(_) => effects.wake == Some(due),
            Due::Expiry(at) => effects.expires_at == Some(at),
            Due::Gap(_) => rare(&effects)
                .gap_until
                .is_some_and(|(_, until)| until == time),
        };
        assert!(time > self.now + TICK || !armed_again, "its time has come");
        if let Some(gap) = rare(&effects).gap {
            assert_eq!(due, Due::Gap(gap.since), "nothing else gives it up");
            assert!(time <= self.now + TICK, "its time has not come");
        }
        if std::mem::take(&mut effects.stale) {
            assert_eq!(kind, 0, "only these are counted");
            self.stale -= 1;
        }
        self.apply(effects);
    }

    fn decide(&mut self, decision: Decision) {
        if decision == Decision::Pause {
            let tat = self.tat;
            self.lane.get_or_insert_with(|| TestLane::empty(tat));
        }
        let Some(lane) = &mut self.lane else { return };
        let timer = match lane.state() {
            State::Backoff { timer, .. } => Some(*timer),
            _ => None,
        };
        let before = (decision, lane.phase(), timer == Some(Timer::Spent));
        let told = told(lane, decision, self.now);
        let mut decided = Ok(());
        let effects = effects_of(|done| {
            decided = lane.decide(decision, self.now, &self.rules, &self.spares, done);
        });
        match decided {
            Ok(()) => {
                let went = went(lane, decision, &effects);
                assert_eq!(Ok(went), told, "{decision:?}");
                self.lingered &= decision != Decision::Purge;
                self.deciding = Some(before);
                self.apply(effects);
                self.deciding = None;
            }
            Err(why) => assert_eq!(Err(why), told, "{decision:?}"),
        }
    }

    /// The messages that are no load from now on are marked, as the engine does it.
    fn stall(&mut self, stall: Stall) {
        let Some(lane) = &mut self.lane else { return };
        let mut marked = Vec::new();
        if let Stall::Early(version) | Stall::LaneAndEarly(version) = stall {
            marked.extend(lane.early_mut(version).map(|early| early.id));
        }
        if let Stall::Lane | Stall::LaneAndEarly(_) = stall {
            let parked = lane.parked_mut().rev().map(|parked| parked.id);
            marked.extend(parked.take_while(|id| !self.stalled.contains(id)));
            marked.extend(lane.head().map(|head| head.id));
            let may = self.was_stalled
                || lane.is_stalled()
                || lane.depth(&self.rules) > self.rules.capacity;
            assert!(may, "{stall:?}, and the lane may go on");
        }
        if let Stall::Returned(count) = stall {
            let newest = lane.parked_mut().next_back().map(|newest| newest.id);
            if newest.is_some_and(|newest| self.stalled.contains(&newest)) {
                marked.extend(lane.parked_mut().take(count).map(|parked| parked.id));
            }
        }
        self.stalled.extend(marked);
    }

    /// A lane that stalls tells since when its oldest message has waited.
    fn check_stalled_since(&self, since: Option<u64>) {
        let Some(lane) = &self.lane else { return };
        let oldest = lane.oldest_parked().map(|oldest| u64::from(oldest.id));
        assert!(
            since.is_none() || since == oldest,
            "{since:?} is not the oldest"
        );
        let waits = matches!(lane.state(), State::Waiting { .. });
        let stalls = waits && lane.is_stalled() && !self.held;
        if stalls && lane.wait_reason() != Some(WaitReason::Rate) {
            assert_eq!(since, oldest, "it is not known to wait");
        } else if !waits || !lane.is_stalled() {
            assert_eq!(since, None, "it does not wait for long");
        }
    }

    /// The senders at a gate are let in, or look again.
    fn open(&mut self, opening: Opening<TestGate>) {
        let is_same = |one: &TestGate, other: Option<&TestGate>| {
            other.is_some_and(|other| std::rc::Rc::ptr_eq(&one.0, &other.0))
        };
        let gate = self.lane.as_ref().and_then(Lane::gate);
        let mut closed = None;
        match opening {
            Opening::Nothing => {}
            Opening::Grant(opened, room) => {
                assert!(is_same(&opened, gate), "another gate is opened");
                assert!(room > 0, "it is opened for no sender");
                opened.0.set(opened.available() + room);
            }
            Opening::Close(old) => {
                assert!(!is_same(&old, gate), "the gate stays");
                closed = Some(old);
            }
        }
        if let Some(before) = &self.gate {
            let goes = !is_same(before, gate);
            assert_eq!(
                is_same(before, closed.as_ref()),
                goes,
                "no sender looks again"
            );
        }
        let waits = self.lane.as_ref().is_some_and(Lane::waits_for_version);
        if waits && !self.waited_for_version && self.gate.is_some() {
            assert!(closed.is_some(), "one at the gate may have the version");
        }
        self.waited_for_version = waits;
        self.gate = gate.cloned();
    }

    /// What the step has to say about a lane that waits or holds its head.
    fn check_holds(&mut self, says: bool) {
        let lane = self.lane.as_ref();
        let holds = lane.is_some_and(|lane| {
            matches!(lane.state(), State::Waiting { .. }) || lane.head().is_some()
        });
        assert!(says || self.held || !holds, "the end would not look at it");
        if lane.is_none() {
            self.lingered = false;
        }
        if lane.and_then(Lane::wait_reason) == Some(WaitReason::Linger) && !self.held {
            assert!(!self.lingered, "it waits for more again");
            self.lingered = true;
        }
        let is_paused = lane.is_some_and(Lane::is_paused);
        assert!(holds || is_paused || !says, "nothing is held");
        self.held = holds;
        self.was_stalled = lane.is_some_and(Lane::is_stalled);
    }

    fn check_out(&self, out: &Out<Message, Message>) {
        let &Out::Head {
            restarts, counts, ..
        } = out
        else {
            return;
        };
        let Some((decision, before, was_spent)) = self.deciding else {
            assert!(!restarts && !counts, "its timer went off");
            return;
        };
        assert_eq!(counts, !was_spent, "it is counted once");
        let is_first = before == Phase::Halted || decision == Decision::Replace;
        assert_eq!(restarts, is_first, "{decision:?} in {before:?}");
    }

    fn answer(&mut self, last: Option<u64>) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let Some(lane) = &mut self.lane else { return };
        let effects = effects_of(|done| match asked {
            Store::Load => lane.learn(last, self.now, &self.rules, &self.spares, done),
            Store::Record(version) => lane.recorded(version, done),
        });
        self.apply(effects);
    }

    /// The engine's part.
    fn apply(&mut self, effects: TestEffects) {
        let change = |change| match change {
            Change::None => 0,
            Change::Up => 1,
            Change::Down => -1,
        };
        self.stall(effects.stall);
        self.check_stalled_since(rare(&effects).stalled_since);
        self.check_mark(&effects);
        self.check_out(&effects.out);
        self.stale += i32::from(effects.stale);
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
            self.is_asked = false;
            assert!(self.running.is_none() && self.queued.is_none());
        }
        let rare = effects.rare.map_or_else(Default::default, |rare| *rare);
        self.open(effects.opening);
        self.check_holds(effects.holds && !effects.removes);
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
            // What is to be recorded may be said more than once.
            let loads = self.is_asked && self.asked == Some(Store::Load);
            assert!(!loads, "the store is asked twice");
            self.is_asked = true;
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
            let (now, rules, spares) = (self.now, &self.rules, &self.spares);
            let effects = effects_of(|done| lane.offer_merged(newcomer, now, rules, spares, done));
            self.apply(effects);
        }
    }

    fn arm(&mut self, at: Instant, kind: u8, armed: Instant) {
        self.armed += 1;
        self.timers.insert((at, kind, armed, self.armed));
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
            Left::Expired => assert!(message.is_expired(self.rules.stamp(self.now + TICK))),
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
            Some(Queued::Message(message) | Queued::Entered(message)) => Some(message),
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
            self.check_stalled(lane);
            self.check_gate(lane);
            self.check_expiries(lane);
        } else {
            assert!(self.queued.is_none() && self.running.is_none());
            assert_eq!((self.paused, self.halted, self.full), (0, 0, 0));
        }
        let backoffs = self.timers.iter().filter(|timer| timer.1 == 0).count();
        let is_timed = self.lane.as_ref().is_some_and(Lane::is_timed);
        let stale = backoffs as i32 - i32::from(is_timed);
        assert_eq!(self.stale, stale, "timers that nothing waits for");
        // The head and what is out with it are counted as one message, and its batch.
        let is_out = matches!(
            self.lane.as_ref().map(TestLane::phase),
            Some(Phase::Ready | Phase::Running)
        );
        let members = self.running.iter().chain(match &self.queued {
            Some(Queued::Message(message) | Queued::Entered(message)) => Some(message),
            _ => None,
        });
        let members: usize = members.map(|message| message.members.len()).sum();
        let heads = usize::from(is_out) + members + usize::from(held > 0);
        let open = self.messages.values().filter(|why| why.is_none()).count();
        let parked = inside - heads;
        assert_eq!(parked + held + outside, open, "a message is lost");
    }

    /// What expires does so at its time, by a timer.
    fn check_expiries(&self, lane: &TestLane) {
        let timers = || {
            self.timers
                .iter()
                .filter(|timer| timer.1 == 2)
                .map(|timer| timer.0)
        };
        for expires_at in lane.parked().filter_map(|message| message.expires_at) {
            let is_watched = timers().any(|at| self.rules.stamp(at) <= expires_at);
            assert!(is_watched, "nothing watches it");
        }
    }

    /// What cannot go on is no load.
    fn check_stalled(&self, lane: &TestLane) {
        let is_stalled = |message: &Message| self.stalled.contains(&message.id);
        assert!(lane.first_early().is_none_or(is_stalled), "early, and load");
        if lane.is_stalled() {
            assert!(lane.head().is_none_or(is_stalled), "a head is load");
            // The engine looks from the back up to the first that is no load. What was early is
            // none, and may be behind what is; so may what flooded the lane before the first one
            // came back.
            let is_ordered = self.rules.sequence().is_none();
            let returned = |message: &Message| self.returned.contains(&message.id);
            let all = lane
                .parked()
                .all(|parked| is_stalled(parked) || returned(parked));
            assert!(all || !is_ordered, "it waits, and is load");
        }
    }

    /// There are as many permits at the gate as there is room.
    fn check_gate(&self, lane: &TestLane) {
        let depth = lane.depth(&self.rules);
        let capacity = self.rules.capacity;
        // One that comes back brings what was merged into it.
        let merged: usize = lane.parked().map(|message| message.merged.len()).sum();
        if let Some(gate) = lane.gate() {
            let room = capacity.saturating_sub(depth);
            // One that came with a permit and was there already leaves room until the next goes.
            let is_exact = self.rules.sequence().is_none();
            let comes = gate.available() >= room;
            assert!(comes || !is_exact, "there is room, and no sender comes");
            let most = room + self.uninvited + merged;
            assert!(gate.available() <= most, "too many come");
        } else if self.rules.has_gates() {
            assert!(depth < capacity + merged, "a full lane has a gate");
        }
    }

    /// A lane that waits has something that wakes it.
    fn check_wait(&self, lane: &TestLane) {
        let State::Waiting { reason, until } = lane.state() else {
            return;
        };
        let armed = |kind, at| {
            let mut timers = self.timers.iter();
            timers.any(|(until, what, armed, _)| (*until, *what, *armed) == (at, kind, at))
        };
        match reason {
            WaitReason::Rate | WaitReason::Delay | WaitReason::Linger => {
                let until = until.expect("it waits for a time");
                assert!(armed(1, until), "nothing wakes it from {reason:?}");
                let first = lane.oldest_parked().expect("it waits with a message");
                let is_delayed = *reason == WaitReason::Delay;
                assert!(
                    !is_delayed || first.not_before == Some(until),
                    "not for its first"
                );
                let full = self
                    .rules
                    .batch()
                    .map(|batch| batch.max.min(self.rules.capacity));
                let is_full = full.is_none_or(|full| lane.parked_len() >= full);
                assert!(
                    *reason != WaitReason::Linger || !is_full,
                    "it waits for nothing"
                );
            }
            WaitReason::Paused => {
                assert!(lane.is_paused());
                assert_eq!(*until, None, "it waits for an operator");
            }
            WaitReason::Load | WaitReason::Record => assert!(self.asked.is_some()),
            WaitReason::Gap => {
                let is_armed = self.timers.iter().any(|timer| timer.1 == 3);
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
            self.finish();
            self.pass(25, false);
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

/// What a lane was like before a message came.
struct Before {
    id: u32,
    waits: Option<u32>,
    is_full: bool,
    /// It is early, and none of its version is here.
    is_early: bool,
    early: usize,
    is_unknown: bool,
}

impl Before {
    fn of(lane: &TestLane, message: &Message, rules: &Rules) -> Self {
        let sequencer = lane.sequencer();
        let gaps = rules.sequence().is_some_and(SequenceRules::has_gaps);
        Self {
            id: message.id,
            waits: lane.parked().last().map(|waits| waits.id),
            is_full: rules.at_limit != AtLimit::Park && lane.depth(rules) >= rules.capacity,
            is_early: sequencer.is_some_and(|sequencer| {
                sequencer.is_early(message.version, gaps) && !sequencer.has(message.version)
            }),
            early: sequencer.map_or(0, Sequencer::early_len),
            is_unknown: sequencer.is_none_or(Sequencer::is_unknown),
        }
    }

    /// What came of the message.
    fn check(&self, lane: &TestLane, effects: &TestEffects, rules: &Rules) {
        let left: Vec<_> = effects
            .left
            .as_slice()
            .iter()
            .map(|(left, why)| (left.id, *why))
            .collect();
        let bodies = &rare(effects).bodies;
        let merges = rare(effects).merge.as_ref();
        let merges = merges.map(|pair| (pair.0.id, pair.1.id));
        if merges.is_some() {
            let is_left_alone = effects.depth == 0 && !effects.removes;
            assert!(is_left_alone, "the lane goes on before they are one");
        }
        match (&rules.plan, self.waits) {
            (PlanRules::Coalesce(coalesce), Some(waits)) => {
                let new = self.id;
                let shares = coalesce.shares && !self.is_full;
                let (expected_left, expected_bodies, expected_merge) = match coalesce.survivor {
                    Survivor::First if shares => (None, Some(new), None),
                    Survivor::First => (Some((new, Left::Declined)), None, None),
                    Survivor::Latest if shares => (None, Some(waits), None),
                    Survivor::Latest => (Some((waits, Left::Superseded)), None, None),
                    Survivor::Merged if !self.is_full => (None, None, Some((waits, new))),
                    Survivor::Merged if rules.at_limit == AtLimit::Refuse => {
                        (Some((new, Left::Refused)), None, None)
                    }
                    Survivor::Merged => (Some((waits, Left::Displaced)), None, None),
                };
                let expired = |(_, why): &(u32, Left)| *why == Left::Expired;
                let left: Vec<_> = left.into_iter().filter(|left| !expired(left)).collect();
                assert_eq!(left, Vec::from_iter(expected_left));
                assert_eq!(*bodies, Vec::from_iter(expected_bodies));
                assert_eq!(merges, expected_merge);
            }
            (PlanRules::Coalesce(_), None) => {
                assert!(bodies.is_empty() && merges.is_none(), "nothing waits");
            }
            (PlanRules::Sequence(sequence), _) => {
                let refused = left.contains(&(self.id, Left::Refused));
                assert!(refused || !self.is_early || !self.is_full, "it is too much");
                assert!(!refused || self.is_full, "there is room");
                let early = lane.sequencer().map_or(0, Sequencer::early_len);
                let gives_up = sequence.on_gap != OnGap::Halt && lane.sequencer().is_some();
                if rare(effects).gap.is_some() {
                    assert!(self.early >= sequence.early, "it is given up too early");
                } else if gives_up && !self.is_unknown && early > self.early {
                    assert!(early <= sequence.early, "too many are early");
                }
            }
            (PlanRules::Fifo | PlanRules::Batch(_), _) => {}
        }
    }
}

/// What a decision comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// The head goes out.
    Out,
    /// The head, or the first of what is parked, settles.
    Skipped,
    /// The missing versions are given up.
    GivenUp,
    /// The missing versions are waited for once more.
    WaitsAnew,
    /// The lane is asked for its next message.
    Asked,
    Emptied,
    Paused,
    /// Nothing else happens, or not yet.
    Nothing,
}

/// What a decision should come to.
fn told(lane: &TestLane, decision: Decision, now: Instant) -> Result<Went, Undecidable> {
    let parked = lane.parked_len() > 0;
    Ok(match (decision, lane.state()) {
        (Decision::Pause, _) => Went::Paused,
        (Decision::Purge, _) => Went::Emptied,
        (Decision::Resume, state) if lane.is_paused() => match state {
            State::Waiting {
                reason: WaitReason::Load | WaitReason::Record,
                ..
            } => Went::Nothing,
            State::Waiting { .. } => Went::Asked,
            State::Backoff { until, timer, .. }
                if *timer != Timer::Armed || *until <= now + TICK =>
            {
                Went::Out
            }
            _ => Went::Nothing,
        },
        (Decision::Resume, State::Halted { .. }) => Went::Out,
        (Decision::Resume, _) if lane.wait_reason() == Some(WaitReason::HaltedGap) => {
            Went::WaitsAnew
        }
        (Decision::Resume, _) => return Err(Undecidable::Nothing),
        (_, State::Ready | State::Running { .. }) => return Err(Undecidable::InFlight),
        (Decision::RetryNow, State::Backoff { .. }) if !lane.is_paused() => Went::Out,
        (Decision::RetryNow, _) => return Err(Undecidable::Nothing),
        (Decision::Replace, State::Backoff { .. } | State::Halted { .. }) => Went::Out,
        (Decision::Replace, _) if parked => Went::Nothing,
        (Decision::Skip, State::Backoff { .. } | State::Halted { .. }) => Went::Skipped,
        (Decision::Skip, _) if lane.waits_for_version() => Went::GivenUp,
        (Decision::Skip, _) if parked => Went::Skipped,
        (Decision::Replace | Decision::Skip, _) => return Err(Undecidable::Nothing),
    })
}

/// What a decision has come to.
fn went(lane: &TestLane, decision: Decision, effects: &TestEffects) -> Went {
    let skipped = effects
        .left
        .as_slice()
        .iter()
        .any(|(_, why)| *why == Left::Skipped);
    let skips = skipped || matches!(rare(effects).taken, Some((_, Taken::Skipped)));
    match (decision, &effects.out) {
        (Decision::Purge, _) => {
            assert!(
                lane.parked_len() == 0 && lane.head().is_none() && lane.first_early().is_none()
            );
            assert!(
                effects
                    .left
                    .as_slice()
                    .iter()
                    .all(|(_, why)| *why == Left::Purged)
            );
            assert!(!matches!(rare(effects).taken, Some((_, Taken::Skipped))));
            Went::Emptied
        }
        (Decision::Pause, _) => {
            assert!(lane.is_paused());
            Went::Paused
        }
        (Decision::Skip, _) if skips => Went::Skipped,
        (Decision::Skip, _) => {
            assert!(!lane.waits_for_version() || lane.parked_len() == 0);
            Went::GivenUp
        }
        (_, Out::Head { .. }) => Went::Out,
        (Decision::Resume, Out::Lane { .. }) => Went::Asked,
        (Decision::Resume, _) if rare(effects).gap_until.is_some() => {
            assert_eq!(lane.wait_reason(), Some(WaitReason::Gap));
            Went::WaitsAnew
        }
        _ => Went::Nothing,
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
