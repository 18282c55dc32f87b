//! The world of a lane: the ready queue, the runner, the timers and the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keylane_rt::clock::Instant;

use super::super::testing::{Message, TestGate, TestLane, effects as effects_of, rare};
use super::super::{Decision, Due, Few, Hold, Out, Phase, Spares, State, Store, Timer, WaitReason};
use super::decided::{told, went};
use super::offered::Before;
use super::steps::Step;
use crate::gate::Gate;
use crate::item::Item;
use crate::rules::{Rules, TICK};

/// What is out of the lane.
#[derive(Debug)]
pub(super) enum Queued {
    Lane,
    /// The first message of a lane, which has not met what came since.
    Entered(Message),
    /// What two have become, in the hands of the runner that has merged them.
    Merged(Message),
    Message(Message),
}

/// The lane of one key, and all that is around it.
pub(super) struct World {
    pub(super) rules: Rules,
    pub(super) spares: Spares<Message>,
    pub(super) lane: Option<TestLane>,
    /// In the ready queue.
    pub(super) queued: Option<Queued>,
    /// With a runner.
    pub(super) running: Option<Message>,
    /// With the router, which merges them: the one that waited, and the newcomer.
    pub(super) merging: Option<(Message, Few<Message>)>,
    /// Its time, what it is, what it was armed for, and its number.
    pub(super) timers: BTreeSet<(Instant, u8, Instant, u32)>,
    pub(super) armed: u32,
    pub(super) now: Instant,
    pub(super) next: u32,
    /// Every message that was accepted, and why it left if it did.
    pub(super) messages: BTreeMap<u32, Option<&'static str>>,
    /// Messages whose obligation another one has.
    pub(super) merged: BTreeSet<u32>,
    pub(super) started: Vec<Message>,
    pub(super) passed: Option<u64>,
    pub(super) tat: u64,
    pub(super) oracle: u64,
    pub(super) halted: i32,
    pub(super) paused: i32,
    pub(super) full: i32,
    /// Timers of heads in backoff that find another state than they were armed for.
    pub(super) stale: i32,
    /// Messages that do not count.
    pub(super) stalled: BTreeSet<u32>,
    /// Messages that were in the ready queue and came back.
    pub(super) returned: BTreeSet<u32>,
    /// Whether the lane held something back, or was stalled, before the step.
    pub(super) held: bool,
    pub(super) was_stalled: bool,
    pub(super) waited_for_version: bool,
    pub(super) gate: Option<TestGate>,
    /// Messages that came to a full lane and had no permit.
    pub(super) uninvited: usize,
    /// Whether the lane has waited for a batch to grow, since the last one started.
    pub(super) lingered: bool,
    /// What was accepted up to then must leave the lane.
    pub(super) mark: Option<u32>,
    /// The decision that is carried out, if one is, and the state in which it found the lane.
    pub(super) deciding: Option<(Decision, Phase, bool)>,
    /// What the version store was asked.
    pub(super) asked: Option<Store>,
    /// Whether it was this lane that asked.
    pub(super) is_asked: bool,
    /// Whether the lease of the key is held.
    pub(super) is_leased: bool,
}

impl World {
    pub(super) fn new(rules: Rules) -> Self {
        let now = rules.epoch + Duration::from_secs(1);
        Self {
            rules,
            spares: Spares::new(),
            lane: None,
            queued: None,
            running: None,
            merging: None,
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
            is_leased: true,
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Offer {
                version,
                lifetime,
                delay,
                on_its_way,
            } => self.offer(version, lifetime, delay, on_its_way),
            Step::Merge => self.end_merge(),
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
            Step::Lease(is_held) => self.lease(is_held),
            Step::Lose => self.lose(),
        }
    }

    pub(super) fn offer(
        &mut self,
        version: u64,
        lifetime: Option<u64>,
        delay: u64,
        on_its_way: bool,
    ) {
        // The router does one thing after the other.
        self.end_merge();
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
        let lingers = lane.state().wait_reason() == Some(WaitReason::Linger);
        let was_stalled = lane.state().is_stalled();
        let before = Before::of(lane, &message, &self.rules);
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let effects = effects_of(|done| lane.offer(message, now, rules, spares, || passed, done));
        before.check(lane, &effects, &self.rules);
        let is_waiting = matches!(lane.state(), State::Waiting { .. });
        assert!(effects.holds || effects.removes || !is_waiting);
        if let Out::Lane { .. } = effects.out {
            assert!(!lane.parked().is_empty(), "it is asked for nothing");
        }
        if lingers && let Some(batch) = self.rules.batch() {
            let is_full = lane.parked().len() >= batch.max.min(self.rules.capacity);
            assert_eq!(is_waiting, !is_full, "it waits until the batch is full");
        }
        let is_flooded = lane.depth(&self.rules) > self.rules.capacity;
        let is_no_load = is_flooded || (was_stalled && lane.state().is_stalled());
        self.apply(effects);
        if is_no_load && let Some(lane) = &mut self.lane {
            let newest = lane.parked_mut().iter_mut().next_back();
            let is_marked = newest.is_none_or(|newest| self.stalled.contains(&newest.id));
            assert!(is_marked, "it came to where nothing goes on, and counts");
        }
    }

    /// What two messages have become comes back into the lane.
    pub(super) fn end_merge(&mut self) {
        let Some((waited, newcomers)) = self.merging.take() else {
            return;
        };
        let merged = self.merge(waited, newcomers);
        let lane = self.lane.as_mut().expect("it has waited for this");
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let effects = effects_of(|done| lane.offer_merged(merged, now, rules, spares, done));
        assert!(
            effects.holds || lane.state().is_out(),
            "the end would not look at it"
        );
        self.apply(effects);
    }

    /// The first message of a lane goes into the ready queue itself.
    pub(super) fn enter(&mut self, message: Message) {
        assert!(self.queued.is_none() && self.running.is_none());
        self.lane = Some(match self.rules.rejoins() {
            true => TestLane::entered(),
            false => TestLane::new(),
        });
        self.queued = Some(Queued::Entered(message));
    }

    pub(super) fn mark(&mut self) {
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

    pub(super) fn suspend(&mut self) {
        if self.running.is_some() {
            let lane = self.lane.as_mut().expect("its head is out");
            lane.suspend(self.now, 1, 0);
        }
    }

    /// A message that was in the ready queue goes back into its lane, if it may not start now.
    pub(super) fn reconsider(&mut self, mut message: Message) {
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

    pub(super) fn take(&mut self) {
        match self.queued.take() {
            None => {}
            Some(Queued::Message(message)) => self.reconsider(message),
            Some(Queued::Entered(message)) => self.begin(message),
            Some(Queued::Merged(message)) => self.reconsider(message),
            Some(Queued::Lane) => {
                let lane = self.lane.as_mut().expect("a lane that is queued is there");
                let effects = effects_of(|done| lane.next(self.now, &self.rules, done));
                self.apply(effects);
                self.start_chosen();
            }
        }
    }

    /// The lane has been asked, and what it has chosen starts.
    pub(super) fn start_chosen(&mut self) {
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
    pub(super) fn begin(&mut self, message: Message) {
        if message.is_expired(self.rules.stamp(self.now)) {
            return self.expire(message);
        }
        let lane = self.lane.as_mut().expect("its head is out");
        if !self.rules.rejoins() {
            return self.reconsider(message);
        }
        if lane.begin() {
            return self.start(message);
        }
        self.rejoin(message);
    }

    /// The lane decides what starts of a message that is out and what has come since.
    fn rejoin(&mut self, message: Message) {
        let lane = self.lane.as_mut().expect("its head is out");
        let first = message.id;
        let newest = lane
            .parked_mut()
            .iter_mut()
            .next_back()
            .map(|newest| newest.id);
        let (now, rules, spares) = (self.now, &self.rules, &self.spares);
        let mut effects = effects_of(|done| lane.rejoin(message, now, rules, spares, done));
        if let Some((waited, newcomers)) = effects.take_merge() {
            assert_eq!(waited.id, first);
            let merged = self.merge(waited, newcomers);
            assert_eq!(Some(merged.id), newest);
            self.apply(effects);
            self.queued = Some(Queued::Merged(merged));
            return;
        }
        self.check_rejoined(first, newest, &effects);
        self.apply(effects);
        self.start_chosen();
    }

    /// A head that was in the ready queue is too late.
    pub(super) fn expire(&mut self, message: Message) {
        assert!(message.merged.is_empty() && message.members.is_empty());
        self.settle(message.id, "expired");
        let lane = self.lane.as_mut().expect("its head is out");
        let effects = effects_of(|done| lane.advance(self.now, &self.rules, done));
        self.apply(effects);
    }

    /// The lease of the key is granted, or is not held any more.
    pub(super) fn lease(&mut self, is_held: bool) {
        self.is_leased = is_held;
        let Some(lane) = self.lane.as_mut().filter(|_| is_held) else {
            return;
        };
        let waits = lane.state().is_unleased() && !lane.is_paused();
        let effects = effects_of(|done| lane.leased(done));
        assert_eq!(waits, !matches!(effects.out, Out::Nothing));
        self.apply(effects);
    }

    /// The handler is dropped. Its messages keep their places.
    pub(super) fn lose(&mut self) {
        self.is_leased = false;
        self.fail_members();
        let Some(head) = self.running.take() else {
            return;
        };
        let lane = self.lane.as_mut().expect("its head is out");
        let hold = Hold::Unleased(self.now);
        let effects = effects_of(|done| lane.hold(Box::new(head), hold, done));
        self.apply(effects);
    }

    /// A message does not start, because the lease of its key is not held.
    fn wait_for_lease(&mut self, mut message: Message) {
        let lane = self.lane.as_mut().expect("its head is out");
        let is_retry = self.started.iter().any(|before| before.id == message.id);
        let effects = if is_retry {
            let hold = Hold::Unleased(self.now);
            effects_of(|done| lane.hold(Box::new(message), hold, done))
        } else {
            let mut items = std::mem::take(&mut message.members);
            items.insert(0, message);
            self.returned.extend(items.iter().map(|item| item.id));
            // For as long as it waits here.
            self.lingered = true;
            let (rules, spares) = (&self.rules, &self.spares);
            effects_of(|done| lane.wait_for_lease(items, rules, spares, done))
        };
        self.apply(effects);
    }

    /// The handler starts, if the lease of its key is held.
    pub(super) fn start(&mut self, message: Message) {
        if !self.is_leased {
            return self.wait_for_lease(message);
        }
        self.lingered = false;
        assert!(self.running.is_none(), "two messages of one key run");
        let is_retry = self.started.iter().any(|before| before.id == message.id);
        if !is_retry {
            self.check_start(&message);
            self.started.push(message.clone());
        }
        self.running = Some(message);
    }

    pub(super) fn finish(&mut self) {
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
            let comes_back = !lane.parked().is_empty() && !rules.starts_at_once();
            let is_asked = matches!(effects.out, Out::Lane { .. });
            assert!(
                is_asked == comes_back || lane.is_paused(),
                "{:?}",
                effects.out
            );
        }
        self.apply(effects);
    }

    pub(super) fn fail(&mut self, halts: bool) {
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

    pub(super) fn fail_members(&mut self) {
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

    pub(super) fn pass(&mut self, millis: u64, early: bool) {
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
            Queued::Lane | Queued::Message(_) | Queued::Merged(_) => false,
        };
        if let Some(Queued::Entered(message)) = self.queued.take_if(is_late) {
            self.expire(message);
        }
    }

    pub(super) fn go_off(&mut self, (time, kind, armed, _): (Instant, u8, Instant, u32)) {
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

    pub(super) fn decide(&mut self, decision: Decision) {
        if decision == Decision::Pause {
            let tat = self.tat;
            self.lane.get_or_insert_with(|| TestLane::empty(tat));
        }
        let Some(lane) = &mut self.lane else { return };
        let timer = match lane.state() {
            State::Backoff { timer, .. } => Some(*timer),
            _ => None,
        };
        let before = (decision, lane.state().phase(), uncounted(timer));
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

    pub(super) fn answer(&mut self, last: Option<u64>) {
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

    /// Everything comes to its end, and nothing is left.
    pub(super) fn run_out(&mut self) {
        for _ in 0..1_000 {
            if self.lane.is_none() {
                break;
            }
            self.decide(Decision::Resume);
            self.lease(true);
            self.answer(Some(0));
            self.take();
            self.finish();
            self.end_merge();
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

/// Whether a head that goes out was counted before, or is not to be.
fn uncounted(timer: Option<Timer>) -> bool {
    matches!(timer, Some(Timer::Spent | Timer::Unleased))
}
