//! The steps of the runners.

use std::task::Poll;

use super::programs::Kind;
use super::real::{Entry, TURNS};
use super::steps::Step;
use super::world::{By, FIRST, Op, Role, Status};
use crate::ready::Take;

impl Step<'_, '_> {
    /// The loop of a runner begins again.
    pub(super) fn loop_of_runner(&mut self, thread: usize) -> bool {
        let runner = &mut self.state.threads[thread];
        runner.recruited = false;
        let next = match runner.role {
            Role::Absent => return false,
            Role::Idle => Op::PollWake,
            Role::Leaving => Op::Lost,
            Role::Recruiter => {
                (runner.role, runner.behind) = (Role::Poller, 0);
                Op::Take
            }
            _ => Op::Take,
        };
        self.plan(next);
        true
    }

    pub(super) fn number(&self) -> u8 {
        (self.thread - FIRST) as u8
    }

    pub(super) fn poll_wake(&mut self) {
        let number = self.number();
        let waits = self.state.threads[self.thread].sleeps;
        let polled = self.real.poll_wake(number, waits);
        let runner = &mut self.state.threads[self.thread];
        runner.woken = false;
        runner.sleeps = polled.is_pending();
        match polled {
            Poll::Pending => {
                if !self.state.idle.all().contains(&number) {
                    self.state.idle.push(number);
                }
                assert!(
                    !self.state.queue_is_closed,
                    "no runner waits at a closed queue"
                );
                self.let_others_run();
                self.plan(Op::PollWake);
            }
            Poll::Ready(true) => {
                assert_eq!(runner.role, Role::Woken, "it was made a poller");
                runner.role = Role::Starting;
            }
            Poll::Ready(false) => {
                assert_eq!(runner.role, Role::Idle, "a poller does not leave");
                runner.role = Role::Leaving;
                let at = self
                    .state
                    .idle
                    .all()
                    .iter()
                    .position(|idle| *idle == number);
                at.map(|at| self.state.idle.remove(at));
            }
        }
    }

    pub(super) fn take_job(&mut self) {
        let runner = &mut self.state.threads[self.thread];
        let first = runner.role == Role::Starting;
        runner.role = Role::Poller;
        let taken = self.real.take(first);
        self.follow(taken);
    }

    pub(super) fn follow(&mut self, taken: Take<Entry>) {
        match taken {
            Take::Job(Entry(entry)) => {
                let front = self.state.queue.pop_front();
                assert_eq!(front, Some(entry), "taken in the order of the ready queue");
                let op = match entry.checked_sub(TURNS) {
                    Some(at) => Op::TakeTurn { at, by: By::Entry },
                    None => Op::Start(entry),
                };
                return self.plan(op);
            }
            Take::Aside(recruit) => {
                self.plan(Op::AskIfFull);
                self.carry_out_recruit(recruit);
                self.state.threads[self.thread].role = Role::Recruiter;
            }
            Take::Idle => {
                self.state.threads[self.thread].role = Role::Idle;
                self.plan(Op::AskIfFull);
            }
            Take::Leave => {
                self.state.threads[self.thread].role = Role::Leaving;
                self.plan(Op::AskIfFull);
            }
        }
        self.wake_router_at_end();
    }

    pub(super) fn start(&mut self, message: u8) {
        if self.hands_back() {
            return self.plan(Op::HandBack(message));
        }
        assert_eq!(
            *self.state.status(message),
            Status::Out,
            "{message} starts once"
        );
        let key = self.program.message(message).key;
        for earlier in self.state.accepted[usize::from(key)].all() {
            if *earlier == message {
                break;
            }
            let status = self.state.messages[usize::from(*earlier)];
            assert_eq!(
                status,
                Status::Settled,
                "{message} starts before {earlier} has settled"
            );
        }
        *self.state.status(message) = Status::Running;
        self.plan(Op::EndHandler(message));
        if self.program.message(message).kind == Kind::Waits {
            self.plan(Op::Hold);
        }
    }

    pub(super) fn hold(&mut self) {
        self.wake_router_at_end();
        self.state.threads[self.thread].role = Role::Holder;
        self.plan(Op::Yield);
        let recruit = self.real.hold();
        self.carry_out_recruit(recruit);
    }

    pub(super) fn end_handler(&mut self, message: u8) {
        let status = self.state.status(message);
        assert_eq!(*status, Status::Running, "{message} settles once");
        *status = Status::Settled;
        let lane = &mut self.state.lanes[usize::from(self.program.message(message).key)];
        let next = lane.parked.pop_front();
        lane.is_there = next.is_some();
        if let Some(next) = next {
            *self.state.status(next) = Status::Out;
        }
        let holds = self.state.threads[self.thread].role == Role::Holder;
        match next {
            Some(next) if holds => self.plan(Op::Resume(next)),
            Some(next) => self.plan(Op::Start(next)),
            None if holds => self.plan(Op::ComeBack),
            None => {}
        }
    }

    pub(super) fn resume(&mut self, message: u8) {
        if self.real.resume() {
            self.state.threads[self.thread].role = Role::Poller;
            return self.plan(Op::Start(message));
        }
        self.plan(Op::ComeBack);
        if self.program.holder_steps_aside {
            self.plan(Op::Yield);
        }
        self.plan(Op::Enqueue {
            message,
            counts: false,
        });
    }

    pub(super) fn come_back(&mut self) {
        self.state.threads[self.thread].role = Role::Poller;
        let (taken, recruit) = self.real.come_back();
        self.follow(taken);
        self.carry_out_recruit(recruit);
    }

    pub(super) fn lost(&mut self) {
        let number = self.number();
        self.plan(Op::Gone);
        let recruit = self.real.lost(number);
        self.carry_out_recruit(recruit);
    }

    pub(super) fn gone(&mut self) {
        self.wake_router();
        let runner = &mut self.state.threads[self.thread];
        assert_eq!(runner.plan.next(), None);
        *runner = Default::default();
    }
}
