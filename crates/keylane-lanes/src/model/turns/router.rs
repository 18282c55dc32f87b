//! The steps of the router, and of what ends the dispatcher.

use super::real::TURNS;
use super::steps::Step;
use super::world::{By, Op, ROUTER, Stage, Status};

impl Step<'_, '_> {
    pub(super) fn act_as_router(&mut self, op: Op) {
        match op {
            Op::Enter(stage) => self.enter_stage(stage),
            Op::Listen => self.listen(),
            Op::FollowStage => self.follow_stage(),
            Op::CloseStripe(at) => {
                self.real.close(at);
                self.state.stripes[usize::from(at)].closed = true;
            }
            Op::CloseReady { is_last } => self.close_ready(is_last),
            Op::HandBackParked => {
                let mut lanes = self.state.lanes;
                for lane in &mut lanes {
                    self.hand_back_parked(lane.parked.take().all());
                }
                self.state.lanes = lanes;
            }
            Op::TakeTurns => self.take_turns(),
            Op::HandOver => {
                let jobs = self.state.jobs.take();
                if !jobs.is_empty() {
                    self.push_all(jobs.all());
                }
            }
            op => unreachable!("{op:?} is no step of the router"),
        }
    }

    fn enter_stage(&mut self, stage: Stage) {
        self.state.stage = self.state.stage.max(stage);
        self.wake_router();
    }

    /// What the router does when it has done all that it had planned.
    pub(super) fn plan_of_router(&mut self) -> bool {
        if self.state.router_ended {
            return false;
        }
        let op = match self.is_finished() {
            true => Op::CloseReady { is_last: true },
            false => Op::Listen,
        };
        self.state.threads[ROUTER].plan.push(op);
        true
    }

    fn is_finished(&self) -> bool {
        let is_settled = |status: &Status| {
            status.is_over() || matches!(status, Status::Unsent | Status::Accepted)
        };
        let batches = self.state.stripes.iter();
        self.state.intake_ended
            && self.state.jobs.is_empty()
            && self.state.messages.iter().all(is_settled)
            && batches
                .map(|stripe| stripe.batch)
                .all(|batch| batch.is_empty())
            && self.real.ready().active() == 0
    }

    fn listen(&mut self) {
        self.state.threads[ROUTER].woken = false;
        if self.has_work() {
            self.state.threads[ROUTER].sleeps = false;
            for op in [Op::HandOver, Op::TakeTurns, Op::FollowStage] {
                self.state.threads[ROUTER].plan.push(op);
            }
        } else {
            self.state.threads[ROUTER].sleeps = true;
            self.state.threads[ROUTER].plan.push(Op::Listen);
        }
    }

    fn channel_is_closed(&self) -> bool {
        self.state.seen > Stage::Open || self.handles_are_gone()
    }

    /// Whether the router would find something to do.
    pub(super) fn router_has_work(&self) -> bool {
        let ends = !self.state.intake_ended && self.channel_is_closed();
        let stage_is_new = self.state.stage != self.state.seen;
        let will_drain = ends && self.state.stage == Stage::Open;
        (ends && (will_drain || self.stripes_are_idle() || self.has_called()))
            || stage_is_new
            || self.state.asked
            || self.is_finished()
    }

    fn stripes_are_idle(&self) -> bool {
        (0..self.state.stripes.len()).all(|at| self.real.stripe(at).is_idle())
    }

    pub(super) fn has_called(&self) -> bool {
        (0..self.state.stripes.len()).any(|at| self.real.stripe(at).is_called())
    }

    fn has_work(&mut self) -> bool {
        if !self.state.intake_ended && self.channel_is_closed() {
            self.state.stage = self.state.stage.max(Stage::Draining);
            if self.stripes_are_idle() {
                self.state.intake_ended = true;
                return true;
            }
            self.state.asked |= self.has_called();
        }
        self.state.stage != self.state.seen || self.state.asked || self.is_finished()
    }

    fn follow_stage(&mut self) {
        let (stage, seen) = (self.state.stage, self.state.seen);
        self.state.seen = stage;
        let plan = &mut self.state.threads[ROUTER].plan;
        if stage >= Stage::Closing {
            if seen < Stage::Closing {
                plan.push(Op::HandBackParked);
            }
            plan.push(Op::CloseReady { is_last: false });
        }
        if stage > Stage::Open && seen == Stage::Open {
            for at in (0..self.program.stripes).rev() {
                plan.push(Op::CloseStripe(at));
            }
        }
    }

    fn take_turns(&mut self) {
        if !std::mem::take(&mut self.state.asked) {
            return;
        }
        for at in (0..self.program.stripes).rev() {
            let by = By::Router;
            self.state.threads[ROUTER]
                .plan
                .push(Op::TakeTurn { at, by });
        }
    }

    fn close_ready(&mut self, is_last: bool) {
        let entries = self.real.close_ready();
        self.state.queue_is_closed = true;
        while let Some(number) = self.real.wakers.next_woken() {
            self.wake_idle(number);
        }
        let queue = self.state.queue.take();
        let closed: Vec<_> = entries.iter().map(|entry| entry.0).collect();
        assert_eq!(closed, queue.all(), "what waited comes out");
        for message in closed.into_iter().rev().filter(|entry| *entry < TURNS) {
            assert!(!is_last, "{message} waits after the end");
            self.state.threads[ROUTER].plan.push(Op::HandBack(message));
        }
        self.state.router_ended = is_last && self.is_finished();
    }

    fn wake_idle(&mut self, number: usize) {
        self.state.threads[super::world::FIRST + number].woken = true;
    }
}
