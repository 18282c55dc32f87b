//! What is true in every state, and at the end.

use super::programs::{End, Program};
use super::real::{Real, TURNS};
use super::world::{ROUTER, Role, State, Status};

impl State {
    /// What is true after every step. Takes over what only the stripes know.
    pub(super) fn check(&mut self, program: &Program, real: &Real<'_>) {
        for (at, stripe) in self.stripes.iter_mut().enumerate() {
            let seen = real.stripe(at);
            let is_idle = stripe.messages.is_empty() && !stripe.is_taken;
            assert_eq!(seen.is_idle(), is_idle, "whether stripe {at} is idle");
            stripe.is_called = seen.is_called();
            stripe.is_entered = seen.is_entered();
            assert!(
                !stripe.is_called || !stripe.is_taken,
                "stripe {at} is called, and its turn is taken"
            );
        }
        let active = self.count(Role::is_active);
        assert_eq!(real.ready().active(), active, "permits are active runners");
        assert_eq!(real.ready().waiting(), self.queue.len(), "jobs that wait");
        assert!(self.count(Role::is_starting) <= 1, "one recruit at a time");
        let takes_jobs = |role| matches!(role, Role::Poller | Role::Recruiter);
        assert!(
            self.count(takes_jobs) <= program.pollers,
            "too many pollers"
        );
        for at in 0..self.stripes.len() {
            let is_turn = |entry: &&u8| usize::from(**entry) == usize::from(TURNS) + at;
            let turns = self.queue.all().iter().filter(is_turn).count();
            assert!(turns <= 1, "stripe {at} is entered twice");
        }
    }

    /// What is true when only handlers that wait can go on.
    pub(super) fn check_rest(&self, program: &Program) {
        for (at, stripe) in self.stripes.iter().enumerate() {
            let is_idle = stripe.messages.is_empty() && !stripe.is_taken;
            assert!(is_idle, "messages wait in stripe {at}, and no runner comes");
        }
        let is_full = self.count(Role::is_active) >= program.concurrency;
        assert!(
            self.queue.is_empty() || is_full,
            "jobs wait, and no runner comes"
        );
    }

    /// What is true when no thread can take a step.
    pub(super) fn check_end(&self, program: &Program) {
        for (at, status) in self.messages[..program.messages.len()].iter().enumerate() {
            assert!(status.is_over(), "message {at} is {status:?} for ever");
            assert!(
                program.hands_back() || *status != Status::HandedBack,
                "message {at} is handed back by a drain"
            );
        }
        if program.end == End::Never {
            return;
        }
        assert!(self.router_ended, "the router waits for ever");
        for (number, runner) in self.runners() {
            assert_eq!(runner.role, Role::Absent, "thread {number} waits for ever");
        }
        assert_eq!(self.threads[ROUTER].plan.next(), None);
    }
}
