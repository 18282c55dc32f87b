//! Random runs of three candidates and one store: calls that are lost, late or done twice,
//! candidates that stand still, phases that fail or hang.
//!
//! What is asserted, at each moment at which a candidate acts:
//!
//! - The store grants the term to it, and to no other (L1, L2).
//! - A fenced target takes no write of an older term; an unfenced one does, now and then.
//! - `hand_over` runs once for each `inaugurate` that has returned `Ok` (L5).
//! - After a leader that was lost, the next one waits, where it is to (L4).
//! - Once faults end, a candidate leads; and each that is closed comes to its end.

use std::time::Duration;

use keylane_leases::Token;
use keylane_leases::error::LeaseLost;
use keylane_leases::table::ends_at;
use keylane_testkit::scenario::{Random, cases};
use tokio::time::Instant;

use super::input::{Call, Input, Outcome, Phase, Sight, Succession};
use super::state::{Machine, Name};
use crate::settings::{Lost, Settings};
use crate::store::{CandidateId, Recorded, Stage, TermRecord, after, replaces};

const STEP: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_millis(1_000);
const GRACE: Duration = Duration::from_millis(400);
const CALL_LIMIT: Duration = Duration::from_millis(300);

/// Faults end after so many steps.
const FAULTS: u32 = 900;

/// Then a candidate leads, after so many more at most.
const QUIET: u32 = 500;

/// Something that the store does for a candidate.
#[derive(Clone, Debug)]
enum Op {
    Enter,
    Acquire,
    Renew(Token),
    Record(TermRecord),
    Release(Token),
    Withdraw,
    /// A write to the target, which refuses older terms.
    Write(Token),
}

/// What it answers.
#[derive(Clone, Debug)]
enum Reply {
    Seen(Sight),
    Granted(Option<Token>),
    Renewed(bool),
    Recorded(Recorded),
    Done,
}

struct Store {
    holder: Option<(usize, Token, Instant)>,
    last: u64,
    record: Option<TermRecord>,
    entries: Vec<(usize, Instant)>,
    /// The highest token that the target of the writes has seen.
    seen: Token,
    /// Writes of older terms that it has refused.
    stale: u64,
    /// Calls that are under way, and are done then.
    under_way: Vec<(Instant, usize, Op)>,
}

/// A call of a candidate: its answer comes then, if it comes.
struct Sent {
    at: Instant,
    op: Op,
    done: Instant,
    answered: Option<Instant>,
    reply: Option<Reply>,
}

struct Lease {
    token: Token,
    until: Instant,
    renew_at: Instant,
}

struct Runner {
    machine: Machine,
    id: CandidateId,
    frozen_until: Instant,
    call: Option<(Call, Vec<Sent>)>,
    renewal: Option<Sent>,
    lease: Option<Lease>,
    is_loss_reported: bool,
    phase: Option<(Phase, Option<Instant>, Outcome)>,
    /// `inaugurate` has returned `Ok`, and `hand_over` was not called.
    owes_hand_over: bool,
    /// When it acted last, under which token, and whether its term ended in order.
    acted: Option<(Instant, Token)>,
    ended: Token,
}

struct World {
    random: Random,
    now: Instant,
    store: Store,
    runners: Vec<Runner>,
    lost: Lost,
    is_faulty: bool,
}

fn id(number: usize) -> CandidateId {
    CandidateId::new(number.to_string()).unwrap()
}

impl Store {
    fn carry_out(&mut self, candidate: usize, op: &Op, now: Instant) -> Reply {
        self.entries.retain(|(_, until)| *until > now);
        self.holder = self.holder.filter(|(_, _, until)| *until > now);
        match op {
            Op::Enter => {
                let entry = self
                    .entries
                    .iter_mut()
                    .find(|(known, _)| *known == candidate);
                match entry {
                    Some((_, until)) => *until = now + TTL,
                    None => self.entries.push((candidate, now + TTL)),
                }
                Reply::Seen(self.sight(candidate, now))
            }
            Op::Acquire if self.holder.is_some_and(|(holder, ..)| holder != candidate) => {
                Reply::Granted(None)
            }
            Op::Acquire => {
                self.last += 1;
                let until = self
                    .holder
                    .map_or(now, |(_, _, until)| until)
                    .max(now + TTL);
                self.holder = Some((candidate, Token(self.last), until));
                Reply::Granted(Some(Token(self.last)))
            }
            Op::Renew(token) => match &mut self.holder {
                Some((holder, held, until)) if *holder == candidate && held == token => {
                    *until = now + TTL;
                    Reply::Renewed(true)
                }
                _ => Reply::Renewed(false),
            },
            Op::Record(term) => {
                let recorded = after(self.record.as_ref(), term);
                if replaces(self.record.as_ref(), term) {
                    self.entries.retain(|(entry, _)| id(*entry) != term.leader);
                    self.record = Some(term.clone());
                }
                Reply::Recorded(recorded)
            }
            Op::Release(token) => {
                self.holder = self.holder.filter(|(_, held, _)| held != token);
                Reply::Done
            }
            Op::Withdraw => {
                self.entries.retain(|(entry, _)| *entry != candidate);
                Reply::Done
            }
            Op::Write(token) => {
                self.stale += u64::from(*token < self.seen);
                self.seen = self.seen.max(*token);
                Reply::Done
            }
        }
    }

    fn sight(&self, candidate: usize, now: Instant) -> Sight {
        let chosen = self
            .record
            .as_ref()
            .and_then(|record| record.chosen.as_ref());
        let chosen = self
            .entries
            .iter()
            .find(|(entry, _)| Some(&id(*entry)) == chosen);
        let next = chosen.or_else(|| self.entries.iter().min_by_key(|(entry, _)| entry % 2));
        let is_leaving = self.record.as_ref().is_some_and(|record| {
            record.stage == Stage::Leaving
                && self
                    .holder
                    .is_some_and(|(_, token, _)| token == record.token)
        });
        Sight {
            is_next: next.map(|(entry, _)| *entry) == Some(candidate),
            held_for: self.holder.map(|(_, _, until)| until - now),
            is_leaving,
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = Instant::now();
        let lost = match random.one_in(2) {
            true => Lost::Wait(GRACE),
            false => Lost::Fenced,
        };
        let settings = Settings {
            lost,
            ttl: TTL,
            prepare_limit: STEP * 20,
            inaugurate_limit: STEP * 30,
            stop_limit: STEP * 20,
            hand_over_limit: STEP * 20,
            retry: STEP * 5,
            longest_pause: STEP * 20,
            ..Settings::new()
        };
        let count = 2 + usize::from(random.one_in(2));
        let runner = |number| Runner {
            machine: Machine::new(settings.clone(), now),
            id: id(number),
            frozen_until: now,
            call: None,
            renewal: None,
            lease: None,
            is_loss_reported: false,
            phase: None,
            owes_hand_over: false,
            acted: None,
            ended: Token(0),
        };
        Self {
            now,
            store: Store {
                holder: None,
                last: 0,
                record: None,
                entries: Vec::new(),
                seen: Token(0),
                stale: 0,
                under_way: Vec::new(),
            },
            runners: (0..count).map(runner).collect(),
            lost,
            is_faulty: true,
            random,
        }
    }

    /// Happens once in so many times, while there are faults.
    fn fault(&mut self, times: u64) -> bool {
        self.is_faulty && self.random.one_in(times)
    }

    fn delay(&mut self) -> Duration {
        let most = if self.fault(10) { 40 } else { 3 };
        STEP * u32::try_from(self.random.below(most)).unwrap()
    }

    fn send(&mut self, candidate: usize, op: Op) -> Sent {
        let done = self.now + self.delay();
        if !self.fault(15) {
            self.store.under_way.push((done, candidate, op.clone()));
            if self.fault(15) {
                let again = done + self.delay() * 3;
                self.store.under_way.push((again, candidate, op.clone()));
            }
        }
        let answered = done + self.delay();
        Sent {
            at: self.now,
            op,
            done,
            answered: Some(answered).filter(|_| !self.fault(15)),
            reply: None,
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        self.store_works();
        for number in 0..self.runners.len() {
            if self.fault(150) {
                let pause = STEP * u32::try_from(self.random.below(200)).unwrap();
                self.runners[number].frozen_until = self.now + pause;
            }
            if self.runners[number].frozen_until <= self.now {
                self.run(number);
            }
        }
    }

    fn store_works(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.store.under_way)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.store.under_way = later;
        let due: Vec<(Instant, usize, Op)> = due;
        for (at, candidate, op) in due {
            let reply = self.store.carry_out(candidate, &op, now);
            let runner = &mut self.runners[candidate];
            let sent = runner.call.iter_mut().flat_map(|(_, sent)| sent);
            for sent in sent.chain(runner.renewal.as_mut()) {
                let is_it = sent.done == at && format!("{:?}", sent.op) == format!("{op:?}");
                if is_it && sent.reply.is_none() {
                    sent.reply = Some(reply.clone());
                }
            }
        }
    }

    fn run(&mut self, number: usize) {
        self.keep_lease(number);
        if self.fault(400) {
            self.command(number);
        }
        while let Some(input) = self.input(number) {
            self.apply(number, input);
        }
        self.act(number);
    }

    fn command(&mut self, number: usize) {
        let leads = matches!(
            self.runners[number].machine.name(),
            Name::Inaugurating | Name::Executing | Name::Doubtful
        );
        let other = id((number + 1) % self.runners.len());
        match self.random.below(5) {
            0 | 1 if leads => self.apply(number, Input::Resign(None)),
            2 | 3 if leads => self.apply(number, Input::Resign(Some(other))),
            4 if self.random.one_in(4) => self.apply(number, Input::Close),
            _ => {}
        }
    }

    /// Renews the lease, and ends it by the clock.
    fn keep_lease(&mut self, number: usize) {
        let now = self.now;
        let Some(lease) = &self.runners[number].lease else {
            return;
        };
        let (token, until, renew_at) = (lease.token, lease.until, lease.renew_at);
        if until <= now {
            return self.lose(number, LeaseLost::RanOut);
        }
        if let Some(sent) = self.runners[number].renewal.take() {
            let is_over = sent.answered.is_some_and(|at| at <= now);
            match (&sent.reply, is_over) {
                (Some(Reply::Renewed(false)), true) => self.lose(number, LeaseLost::TakenOver),
                (Some(Reply::Renewed(true)), true) => {
                    let lease = self.runners[number].lease.as_mut().unwrap();
                    lease.until = ends_at(sent.at, TTL);
                    lease.renew_at = sent.at + TTL / 3;
                }
                _ if sent.at + CALL_LIMIT <= now => {}
                _ => self.runners[number].renewal = Some(sent),
            }
        } else if renew_at <= now {
            self.runners[number].renewal = Some(self.send(number, Op::Renew(token)));
        }
    }

    fn lose(&mut self, number: usize, why: LeaseLost) {
        if !std::mem::replace(&mut self.runners[number].is_loss_reported, true) {
            self.apply(number, Input::Lost(why));
        }
    }

    /// Returns the next input of a candidate.
    fn input(&mut self, number: usize) -> Option<Input> {
        let now = self.now;
        let runner = &mut self.runners[number];
        if let Some((_, Some(until), outcome)) = &runner.phase
            && *until <= now
        {
            let outcome = outcome.clone();
            let phase = runner.phase.take();
            if let Some((Phase::Inaugurate, ..)) = phase
                && outcome == Outcome::Ok
            {
                assert!(!runner.owes_hand_over, "hand_over was not called");
                runner.owes_hand_over = true;
            }
            return Some(Input::PhaseEnded(outcome));
        }
        if let Some(input) = self.answer(number) {
            return Some(input);
        }
        let runner = &self.runners[number];
        let leads = matches!(runner.machine.name(), Name::Executing | Name::Doubtful);
        runner.machine.wants().at.filter(|at| *at <= now)?;
        Some(match &runner.lease {
            Some(lease) if leads => Input::Held(lease.until),
            _ => Input::Tick,
        })
    }

    /// Returns what the answer to a call means.
    fn answer(&mut self, number: usize) -> Option<Input> {
        let now = self.now;
        if let Some((Call::Watch, _)) = self.runners[number].call {
            return self.random.one_in(4).then_some(Input::Changed);
        }
        let (call, sent) = self.runners[number].call.as_mut()?;
        let call = call.clone();
        let first = sent.first()?;
        let (at, reply) = (first.at, first.reply.clone());
        let is_answered = first.answered.is_some_and(|at| at <= now) && reply.is_some();
        if !is_answered && at + CALL_LIMIT > now {
            return None;
        }
        let sent = sent.remove(0);
        let reply = reply.filter(|_| is_answered);
        match (call, reply) {
            (Call::Mark(_), _) => Some(Input::Changed),
            (Call::Release { .. }, _) if matches!(sent.op, Op::Record(_)) => {
                self.release(number);
                None
            }
            (Call::Release { .. } | Call::Withdraw, _) => Some(Input::Done),
            (_, Some(Reply::Seen(sight))) => Some(Input::Looked(sight)),
            (Call::Acquire, Some(Reply::Granted(Some(token)))) => {
                let until = ends_at(at, TTL);
                if until <= now {
                    return Some(Input::CallFailed);
                }
                let renew_at = at + TTL / 3;
                let runner = &mut self.runners[number];
                runner.lease = Some(Lease {
                    token,
                    until,
                    renew_at,
                });
                runner.is_loss_reported = false;
                Some(Input::Granted)
            }
            (Call::Begin, Some(Reply::Recorded(Recorded::Written(was)))) => {
                let is_orderly = was.is_none_or(|was| was.stage == Stage::Ended);
                Some(Input::Began(match is_orderly {
                    true => Succession::Orderly,
                    false => Succession::Lost,
                }))
            }
            _ => Some(Input::CallFailed),
        }
    }

    /// The lease ends here before the store is asked.
    fn release(&mut self, number: usize) {
        let Some(lease) = self.runners[number].lease.take() else {
            return;
        };
        self.runners[number].renewal = None;
        let sent = self.send(number, Op::Release(lease.token));
        if let Some((Call::Release { .. }, sents)) = &mut self.runners[number].call {
            sents.push(sent);
        }
    }

    fn apply(&mut self, number: usize, input: Input) {
        let now = self.now;
        self.runners[number].machine.on(input, now);
        let wants = self.runners[number].machine.wants();
        let name = self.runners[number].machine.name();
        if matches!(name, Name::Candidate | Name::Over) {
            self.release(number);
        }
        let phase = self.runners[number].phase.as_ref().map(|(phase, ..)| phase);
        if phase != wants.phase.as_ref() {
            self.begin_phase(number, wants.phase.clone());
        }
        if let (true, Some((_, until @ None, _))) = (wants.stop, &mut self.runners[number].phase) {
            // It stops, or hangs.
            if !self.random.one_in(4) {
                *until = Some(now + STEP * 3);
            }
        }
        let call = self.runners[number].call.as_ref().map(|(call, _)| call);
        if call != wants.call.as_ref() {
            self.begin_call(number, wants.call);
        }
    }

    fn begin_call(&mut self, number: usize, call: Option<Call>) {
        let Some(call) = call else {
            self.runners[number].call = None;
            return;
        };
        let token = self.runners[number].lease.as_ref().map(|lease| lease.token);
        let leader = self.runners[number].id.clone();
        let record = |stage, chosen: &Option<CandidateId>| {
            token.map(|token| {
                Op::Record(TermRecord {
                    token,
                    leader,
                    stage,
                    chosen: chosen.clone(),
                })
            })
        };
        let op = match &call {
            Call::Look => Some(Op::Enter),
            Call::Watch => None,
            Call::Acquire => Some(Op::Acquire),
            Call::Begin => record(Stage::Began, &None),
            Call::Mark(chosen) => record(Stage::Leaving, chosen),
            Call::Release {
                is_orderly: true,
                chosen,
            } => {
                self.runners[number].ended = token.unwrap_or(Token(0));
                record(Stage::Ended, chosen)
            }
            Call::Release { .. } => token.map(Op::Release),
            Call::Withdraw => Some(Op::Withdraw),
        };
        let releases = matches!(op, Some(Op::Release(_)));
        if releases {
            self.runners[number].lease = None;
            self.runners[number].renewal = None;
        }
        let sent = op.map(|op| self.send(number, op));
        self.runners[number].call = Some((call, sent.into_iter().collect()));
    }

    fn begin_phase(&mut self, number: usize, phase: Option<Phase>) {
        let now = self.now;
        let Some(phase) = phase else {
            self.runners[number].phase = None;
            return;
        };
        if phase == Phase::Inaugurate {
            self.check_wait(number);
        }
        if let Phase::HandOver(_) = phase {
            let owed = std::mem::replace(&mut self.runners[number].owes_hand_over, false);
            assert!(
                owed,
                "hand_over was called without an inauguration, or twice"
            );
        }
        let outcome = match self.fault(6) {
            true => Outcome::Failed(String::new()),
            false => Outcome::Ok,
        };
        let hangs = self.fault(6);
        let takes = STEP * u32::try_from(self.random.below(15)).unwrap();
        let until = match phase {
            Phase::Execute if !self.fault(6) => None,
            _ if hangs => None,
            _ => Some(now + takes),
        };
        self.runners[number].phase = Some((phase, until, outcome));
    }

    /// After a leader that has not ended in order, the new one has waited.
    fn check_wait(&self, number: usize) {
        let Lost::Wait(grace) = self.lost else { return };
        let token = self.runners[number].lease.as_ref().map(|lease| lease.token);
        for (other, runner) in self.runners.iter().enumerate() {
            if let Some((at, acted)) = runner.acted
                && other != number
                && runner.ended < acted
                && Some(acted) < token
            {
                assert!(
                    self.now >= at + grace,
                    "{number} has not waited for {other}"
                );
            }
        }
    }

    /// The leader writes, if it leads.
    fn act(&mut self, number: usize) {
        let now = self.now;
        let runner = &self.runners[number];
        let acts = matches!(runner.phase, Some((Phase::Inaugurate | Phase::Execute, ..)));
        if !acts {
            return;
        }
        let lease = runner.lease.as_ref().expect("a leader has a lease");
        let (token, until) = (lease.token, lease.until);
        assert!(until > now, "{number} acts after the end of its lease");
        let holder = self.store.holder.filter(|(_, _, until)| *until > now);
        // A call that was done twice, or late, may have raised the token of the same holder.
        let held = holder.map(|(holder, ..)| holder);
        assert_eq!(held, Some(number), "{number} acts, and another one leads");
        self.runners[number].acted = Some((now, token));
        assert!(
            token >= self.store.seen,
            "an older term acts after a newer one"
        );
        // A write that was under way when the process stood still arrives later.
        if self.fault(20) {
            let late = STEP * u32::try_from(self.random.below(300)).unwrap();
            self.runners[number].frozen_until = now + late;
            self.store
                .under_way
                .push((now + late, number, Op::Write(token)));
        } else {
            self.store.carry_out(number, &Op::Write(token), now);
        }
    }
}

/// Runs a world, and returns it.
fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    for number in 0..world.runners.len() {
        let call = world.runners[number].machine.wants().call;
        world.begin_call(number, call);
    }
    for _ in 0..FAULTS {
        world.step();
    }
    world.is_faulty = false;
    let stays = |world: &World| {
        let mut names = world.runners.iter().map(|runner| runner.machine.name());
        names.any(|name| name != Name::Over) && !world.runners.iter().all(|r| r.machine.closes())
    };
    let leads = |world: &World| {
        let mut names = world.runners.iter().map(|runner| runner.machine.name());
        names.any(|name| name == Name::Executing)
    };
    let mut steps = 0;
    while stays(&world) && !leads(&world) {
        world.step();
        steps += 1;
        assert!(steps < QUIET, "nothing leads, {:?}", names(&world));
    }
    for number in 0..world.runners.len() {
        world.apply(number, Input::Close);
    }
    for _ in 0..QUIET {
        world.step();
    }
    for runner in &world.runners {
        assert_eq!(runner.machine.name(), Name::Over);
        assert!(!runner.owes_hand_over, "hand_over was not called");
    }
    world
}

fn names(world: &World) -> Vec<Name> {
    world
        .runners
        .iter()
        .map(|runner| runner.machine.name())
        .collect()
}

#[test]
fn candidates_keep_their_promises_under_random_faults() {
    let (mut terms, mut stale) = (0, 0);
    for seed in 0..u64::from(cases(2_000)) {
        match std::panic::catch_unwind(|| run(seed).store) {
            Ok(store) => {
                terms += store.last;
                stale += store.stale;
            }
            Err(panic) => {
                eprintln!("the seed is {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // The runs are worth something: terms change, and a target without a fence would have taken
    // writes of older ones.
    assert!(terms > 4_000, "{terms} terms");
    assert!(stale > 100, "{stale} writes of older terms");
}
