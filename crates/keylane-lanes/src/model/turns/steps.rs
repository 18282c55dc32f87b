//! The steps of senders, and those of turns, as the engine takes them.

use super::programs::{End, Program, RUNNERS};
use super::real::{Deed, Entry, Real, TURNS};
use super::world::{By, CLOSER, FIRST, Op, ROUTER, Role, Stage, State, Status};
use crate::ready::Recruit;

/// A world while one of its threads takes a step.
pub(super) struct Step<'a, 'r> {
    pub(super) program: &'a Program,
    pub(super) state: &'a mut State,
    pub(super) real: &'a mut Real<'r>,
    pub(super) thread: usize,
}

impl Step<'_, '_> {
    /// The first plans of all threads.
    pub(super) fn begin(&mut self) {
        for thread in 0..FIRST {
            self.thread = thread;
            self.run_alone();
        }
    }

    /// Takes the next step of the thread.
    pub(super) fn take(&mut self) {
        if self.state.threads[self.thread].role == Role::Woken {
            // No other runner can change what it finds.
            self.pop();
            self.poll_wake();
            self.run_alone();
            self.real.deed = Deed::Nothing;
        }
        let op = self.pop().expect("it can take a step");
        self.act(op);
        self.run_alone();
        self.forget_what_has_no_effect();
    }

    /// Forgets a wake-up of the router if it would find nothing, and what decides nothing any more.
    fn forget_what_has_no_effect(&mut self) {
        let router = &self.state.threads[ROUTER];
        if router.sleeps && router.woken && !self.router_has_work() {
            self.state.threads[ROUTER].woken = false;
            let runners = self.state.threads[FIRST..].iter_mut();
            runners
                .filter(|runner| usize::from(runner.behind) == ROUTER)
                .for_each(|runner| runner.behind = 0);
        }
        let thread = &mut self.state.threads[self.thread];
        thread.recruited &= thread.plan.contains(Op::TurnEnds);
    }

    pub(super) fn plan(&mut self, op: Op) {
        self.state.threads[self.thread].plan.push(op);
    }

    pub(super) fn pop(&mut self) -> Option<Op> {
        self.state.threads[self.thread].plan.pop()
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::None => {}
            Op::Push(message) => self.push(message),
            Op::CarryOut { at, enters } => self.carry_out(at, enters),
            Op::EnterTurn(at) => self.enter_turn(at),
            Op::Recruit => {
                let recruit = self.real.recruit();
                self.carry_out_recruit(recruit);
            }
            Op::AskRouter => self.ask_router(),
            Op::TakeTurn { at, by } => self.take_turn(at, by),
            Op::Place { at, by } => self.place(at, by),
            Op::PushJobs { at, by } => self.push_jobs(at, by),
            Op::GiveBack { at, by } => self.give_back(at, by),
            Op::TurnEnds => self.turn_ends(),
            Op::Enqueue { message, counts } => self.enqueue(message, counts),
            Op::HandBack(message) => self.hand_back(message),
            Op::PollWake => self.poll_wake(),
            Op::Take => self.take_job(),
            Op::AskIfFull => {
                if self.real.ready().is_full() {
                    self.plan(Op::AskRouter);
                }
            }
            Op::Start(message) => self.start(message),
            Op::Hold => self.hold(),
            Op::Yield => self.let_others_run(),
            Op::EndHandler(message) => self.end_handler(message),
            Op::Resume(message) => self.resume(message),
            Op::ComeBack => self.come_back(),
            Op::Lost => self.lost(),
            Op::Gone => self.gone(),
            op => self.act_as_router(op),
        }
    }

    /// Does what needs no lock, or what no other thread can change any more.
    fn run_alone(&mut self) {
        loop {
            match self.state.threads[self.thread].plan.next() {
                None if !self.plan_more() => return,
                None => {}
                Some(op) if self.is_alone(op) => {
                    self.pop();
                    self.act(op);
                }
                Some(_) => return,
            }
        }
    }

    fn is_alone(&self, op: Op) -> bool {
        let stage_is_final = self.state.threads[CLOSER].plan.next().is_none();
        match op {
            Op::CarryOut { .. } | Op::Start(_) => !self.program.hands_back() || stage_is_final,
            Op::FollowStage => stage_is_final,
            Op::TurnEnds | Op::Yield | Op::Gone | Op::TakeTurns | Op::AskIfFull => true,
            Op::HandOver => self.state.jobs.is_empty(),
            _ => false,
        }
    }

    /// What a thread does that is done with all it has planned. False: nothing.
    fn plan_more(&mut self) -> bool {
        match self.thread {
            ROUTER => self.plan_of_router(),
            CLOSER => self.drop_handle(),
            thread if thread < CLOSER => self.send_next(),
            thread => self.loop_of_runner(thread),
        }
    }

    fn send_next(&mut self) -> bool {
        let sent = usize::from(self.state.sent[self.thread]);
        let mut messages = (0..self.program.messages.len() as u8)
            .filter(|message| usize::from(self.program.message(*message).sender) == self.thread);
        match messages.nth(sent) {
            Some(message) => {
                self.state.sent[self.thread] += 1;
                self.plan(Op::Push(message));
                true
            }
            None => self.drop_handle(),
        }
    }

    fn drop_handle(&mut self) -> bool {
        if self.handles_are_gone() {
            self.wake_router();
        }
        false
    }

    pub(super) fn handles_are_gone(&self) -> bool {
        let threads = &self.state.threads[..=CLOSER];
        let are_done = threads.iter().all(|thread| thread.plan.next().is_none());
        are_done && self.program.end != End::Never
    }

    fn push(&mut self, message: u8) {
        let at = self.program.stripe_of(message);
        let stripe = &mut self.state.stripes[usize::from(at)];
        match self.real.push(at, message) {
            Ok(call) => {
                assert!(!stripe.closed, "a closed stripe took a message");
                stripe.messages.push(message);
                let key = usize::from(self.program.message(message).key);
                self.state.accepted[key].push(message);
                *self.state.status(message) = Status::Accepted;
                State::call_of(at, call)
                    .into_iter()
                    .for_each(|op| self.plan(op));
            }
            Err(back) => {
                assert!(stripe.closed && back == message, "an open stripe refused");
                *self.state.status(message) = Status::Refused;
            }
        }
    }

    pub(super) fn hands_back(&self) -> bool {
        self.state.stage >= Stage::Closing
    }

    fn carry_out(&mut self, at: u8, enters: bool) {
        let op = match enters {
            _ if self.hands_back() => Op::TakeTurn { at, by: By::Rest },
            true => Op::EnterTurn(at),
            false => Op::Recruit,
        };
        self.plan(op);
    }

    fn enter_turn(&mut self, at: u8) {
        match self.real.push_one(TURNS + at) {
            Ok(recruit) => {
                self.state.queue.push(TURNS + at);
                self.carry_out_recruit(recruit);
            }
            Err(_) => self.plan(Op::TakeTurn { at, by: By::Rest }),
        }
    }

    fn enqueue(&mut self, message: u8, counts: bool) {
        match self.real.push_one(message) {
            Ok(recruit) => {
                self.state.queue.push(message);
                let before = self.state.threads[self.thread].recruited;
                self.carry_out_recruit(recruit);
                if !counts {
                    self.state.threads[self.thread].recruited = before;
                }
            }
            Err(Entry(back)) => self.plan(Op::HandBack(back)),
        }
    }

    pub(super) fn carry_out_recruit(&mut self, recruit: Recruit) {
        let thread = match recruit {
            Recruit::None => return,
            Recruit::Full => return self.plan(Op::AskRouter),
            Recruit::Wake(waker) => {
                waker.wake();
                let number = self.real.wakers.next_woken().expect("an idle runner");
                let at = self
                    .state
                    .idle
                    .all()
                    .iter()
                    .position(|idle| usize::from(*idle) == number);
                self.state.idle.remove(at.expect("it was idle"));
                let runner = &mut self.state.threads[FIRST + number];
                (runner.role, runner.woken) = (Role::Woken, true);
                FIRST + number
            }
            Recruit::Spawn => {
                let is_free = |at: &usize| self.state.threads[FIRST + at].role == Role::Absent;
                let number = (0..RUNNERS).find(is_free).expect("there are enough places");
                let runner = &mut self.state.threads[FIRST + number];
                runner.role = Role::Starting;
                runner.plan.push(Op::Take);
                FIRST + number
            }
        };
        self.state.threads[self.thread].recruited = true;
        self.put_behind(thread);
    }

    /// A task that a runner wakes runs on the same worker after it. A task that was behind it
    /// until now may run anywhere.
    fn put_behind(&mut self, thread: usize) {
        if self.thread >= FIRST {
            self.state.threads[self.thread].behind = thread as u8;
        }
    }

    pub(super) fn let_others_run(&mut self) {
        self.state.threads[self.thread].behind = 0;
    }

    fn ask_router(&mut self) {
        let is_called = |at| self.real.stripe(at).is_called();
        if !self.state.asked && (0..self.state.stripes.len()).any(is_called) {
            self.state.asked = true;
            self.wake_router();
        }
    }

    pub(super) fn wake_router(&mut self) {
        let router = &mut self.state.threads[ROUTER];
        if std::mem::replace(&mut router.woken, true) || !router.sleeps {
            return;
        }
        if self.program.router_waits {
            self.put_behind(ROUTER);
        }
    }

    pub(super) fn wake_router_at_end(&mut self) {
        if self.state.stage > Stage::Open {
            self.wake_router();
        }
    }

    fn take_turn(&mut self, at: u8, by: By) {
        if by == By::Entry {
            self.state.threads[self.thread].recruited = false;
            self.plan(Op::TurnEnds);
        }
        if !self.real.take_turn(at, by == By::Entry) {
            return;
        }
        let stripe = &mut self.state.stripes[usize::from(at)];
        assert!(!stripe.is_taken, "two turns of one stripe");
        stripe.is_taken = true;
        for message in self.real.batch(at) {
            let front = stripe.messages.pop_front();
            assert_eq!(front, Some(*message), "taken in the order of the stripe");
            stripe.batch.push(*message);
        }
        assert!(!stripe.batch.is_empty(), "a turn with nothing to place");
        self.plan(Op::Place { at, by });
    }

    fn place(&mut self, at: u8, by: By) {
        let hands_back = self.hands_back();
        let stripe = &mut self.state.stripes[usize::from(at)];
        let message = stripe.batch.pop_front().expect("there is one");
        let lane = &mut self.state.lanes[usize::from(self.program.message(message).key)];
        let status = if hands_back {
            Status::HandedBack
        } else if lane.is_there {
            lane.parked.push(message);
            Status::Parked
        } else {
            lane.is_there = true;
            stripe.jobs.push(message);
            Status::Out
        };
        let next = match (stripe.batch.is_empty(), stripe.jobs.len()) {
            (false, _) => Op::Place { at, by },
            (true, 0) => Op::GiveBack { at, by },
            (true, 1) if self.program.starts_alone => Op::GiveBack { at, by },
            (true, _) => Op::PushJobs { at, by },
        };
        *self.state.status(message) = status;
        self.plan(next);
    }

    fn push_jobs(&mut self, at: u8, by: By) {
        self.plan(Op::GiveBack { at, by });
        let jobs = self.state.stripes[usize::from(at)].jobs.take();
        self.push_all(jobs.all());
    }

    /// Pushes jobs, or hands them back.
    pub(super) fn push_all(&mut self, jobs: &[u8]) {
        match self.real.push_jobs(jobs) {
            Some(recruit) => {
                jobs.iter().for_each(|job| self.state.queue.push(*job));
                self.carry_out_recruit(recruit);
            }
            None => jobs
                .iter()
                .rev()
                .for_each(|job| self.plan(Op::HandBack(*job))),
        }
    }

    fn give_back(&mut self, at: u8, by: By) {
        let call = State::call_of(at, self.real.give_back(at));
        let stripe = &mut self.state.stripes[usize::from(at)];
        stripe.is_taken = false;
        let alone = stripe.jobs.pop_front();
        self.wake_router_at_end();
        if by == By::Rest {
            self.plan(Op::TakeTurn { at, by });
            alone.into_iter().for_each(|message| {
                self.plan(Op::Enqueue {
                    message,
                    counts: false,
                })
            });
            return;
        }
        call.into_iter().for_each(|op| self.plan(op));
        match alone {
            None => {}
            Some(message) if call.is_some() => self.plan(Op::Enqueue {
                message,
                counts: true,
            }),
            Some(message) if by == By::Entry => {
                assert_eq!(self.pop(), Some(Op::TurnEnds));
                self.plan(Op::Start(message));
            }
            Some(message) => self.state.jobs.push(message),
        }
    }

    fn turn_ends(&mut self) {
        let runner = &mut self.state.threads[self.thread];
        if runner.recruited {
            runner.role = Role::Recruiter;
        }
    }

    /// Hands back the head of a lane, and what is parked behind it.
    fn hand_back(&mut self, message: u8) {
        let key = usize::from(self.program.message(message).key);
        let status = self.state.status(message);
        assert_eq!(*status, Status::Out, "{message} is handed back once");
        *status = Status::HandedBack;
        let lane = std::mem::take(&mut self.state.lanes[key]);
        assert!(lane.is_there, "{message} has a lane");
        self.hand_back_parked(lane.parked.all());
    }

    pub(super) fn hand_back_parked(&mut self, parked: &[u8]) {
        for message in parked {
            let status = self.state.status(*message);
            assert_eq!(*status, Status::Parked, "{message} is handed back once");
            *status = Status::HandedBack;
        }
    }
}
