//! The ready queue, and who may take from it.
//!
//! A *runner* is a task in one of three roles, and in some steps between them (see [`Role`]):
//!
//! - **poller**: takes jobs from the queue and polls each handler once. No more of them take jobs
//!   than the runtime has workers, because more could not poll at the same time.
//! - **holder**: its handler returned `Pending`, and it has become that lane's task.
//! - **idle**: waits to be a poller again. A few are kept, the others end.
//!
//! Pollers and holders are *active*; at most `concurrency` runners are. An active runner is a
//! permit, so permits in use are handlers in flight, and no semaphore is touched per message.
//!
//! The limit may change. If it shrinks, runners finish the handlers that they hold. Those above the
//! new limit become idle when they ask for a job.
//!
//! Runners are recruited one at a time. The task that pushes jobs recruits a poller, and a poller
//! that would leave jobs behind recruits the next one. In that step it takes no job and yields
//! first: Tokio runs a task that it wakes on the same worker after it, and another worker can only
//! steal a task that waits in the run queue. All of this is decided here, under one lock. The
//! caller carries out what [`Recruit`] says after the lock is released.
//!
//! A holder whose lane has ended is running, and a recruited poller is not yet. So the holder takes
//! the next job in its place, and the recruited one leaves again if it is one too many. Handlers
//! that wait a moment then wake few runners: a holder that comes back runs the next job itself.
//!
//! With a rate a job may have to wait although a runner asks for it. The runner becomes idle and
//! wakes the router. No runner is recruited until the router says that the next job may start.
//!
//! The router takes out what expires while it waits, at its time. It does not watch the jobs that a
//! runner puts back: they were parked, and the timers of their lanes watch them.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

mod order;
pub use order::CLASSES;

mod pace;

mod queue;
use keylane_rt::clock::Instant;
use keylane_rt::{Mutex, OwnLine, lock};
use queue::Jobs;

use crate::Gcra;
pub use queue::Ranked;

/// The action that the caller must take about runners.
#[derive(Debug)]
#[must_use = "jobs would wait for a runner that is never started"]
pub enum Recruit {
    /// None.
    None,
    /// None: as many runners are active as may be, and more jobs wait.
    Full,
    /// Wake this idle runner: it is a poller already.
    Wake(Waker),
    /// Start a new runner: it is a poller already.
    Spawn,
}

/// The next action of a runner.
#[derive(Debug)]
pub enum Take<T> {
    /// This job.
    Job(T),
    /// More than one job waits, and another runner is available for them: carry out the recruiting,
    /// step aside, and ask again.
    Aside(Recruit),
    /// Nothing to run: wait to be woken as a poller.
    Idle,
    /// Nothing to run, and enough runners are idle.
    Leave,
}

/// Limits that hold for the life of a dispatcher, and the `concurrency` that it starts with.
#[derive(Clone, Copy, Debug)]
pub struct RunnerLimits {
    /// The maximum number of active runners.
    pub concurrency: usize,
    /// The maximum number of pollers.
    pub pollers: usize,
    /// The maximum number of idle runners that are kept.
    pub idle: usize,
}

/// The ready queue, and who may take from it.
#[derive(Debug)]
pub struct Ready<T> {
    limits: RunnerLimits,
    /// First come, first served: nothing decides about jobs but their order.
    first_come: bool,
    /// Whether jobs may expire.
    expires: bool,
    state: OwnLine<Mutex<Inner<T>>>,
}

/// A runner that waits to poll again.
#[derive(Debug)]
struct Idler {
    number: u32,
    waker: Waker,
}

#[derive(Debug)]
struct Inner<T> {
    jobs: Jobs<T>,
    pollers: usize,
    holders: usize,
    idle: Vec<Idler>,
    /// A poller was recruited and has not taken its first job yet.
    starting: bool,
    closed: bool,
    /// Most active runners, as of now.
    concurrency: usize,
    /// The number of the decision that set it.
    decision: u64,
    /// Not later than the first job expires.
    expires_at: Option<u64>,
}

impl<T: Ranked> Inner<T> {
    #[inline]
    fn recruit(&mut self, limits: &RunnerLimits) -> Recruit {
        let active = self.pollers + self.holders;
        if self.jobs.startable() == 0 || self.starting {
            return Recruit::None;
        }
        if active >= self.concurrency {
            return Recruit::Full;
        }
        if self.pollers >= limits.pollers {
            return Recruit::None;
        }
        self.pollers += 1;
        self.starting = true;
        match self.idle.pop() {
            Some(idler) => Recruit::Wake(idler.waker),
            None => Recruit::Spawn,
        }
    }

    #[inline]
    fn take(&mut self, limits: &RunnerLimits) -> Take<T> {
        // Not with a job in hand: its handler may block, and the recruit would wait for it.
        if self.jobs.startable() > 1
            && let recruit @ (Recruit::Wake(_) | Recruit::Spawn) = self.recruit(limits)
        {
            return Take::Aside(recruit);
        }
        if self.jobs.has_precedence() || self.is_over() {
            return self.take_slowly(limits);
        }
        match self.jobs.pop_first() {
            Some(job) => Take::Job(job),
            None => self.leave(limits),
        }
    }

    /// Takes a job where priorities or a rate take precedence, or above the limit.
    #[cold]
    #[inline(never)]
    fn take_slowly(&mut self, limits: &RunnerLimits) -> Take<T> {
        if !self.is_over()
            && let Some(job) = self.jobs.pop()
        {
            return Take::Job(job);
        }
        self.leave(limits)
    }

    fn leave(&mut self, limits: &RunnerLimits) -> Take<T> {
        self.pollers -= 1;
        self.idle_or_leave(limits)
    }

    /// Whether one more runner may take jobs: one that was recruited and has not begun is not
    /// counted.
    #[inline]
    fn has_place(&self, limits: &RunnerLimits) -> bool {
        self.pollers - usize::from(self.starting) < limits.pollers && !self.is_over()
    }

    /// Whether more runners are active than the limit allows. A runner that asks becomes idle then.
    #[inline]
    fn is_over(&self) -> bool {
        self.pollers + self.holders > self.concurrency
    }

    fn idle_or_leave(&self, limits: &RunnerLimits) -> Take<T> {
        if self.idle.len() < limits.idle && !self.closed {
            Take::Idle
        } else {
            Take::Leave
        }
    }

    /// Takes a runner out of the idle ones. False: it is not among them any more.
    fn forget(&mut self, number: u32) -> bool {
        let at = self.idle.iter().position(|idler| idler.number == number);
        at.map(|at| self.idle.swap_remove(at)).is_some()
    }
}

impl<T: Ranked> Ready<T> {
    /// Returns an empty queue.
    pub fn new(limits: RunnerLimits) -> Self {
        let state = Inner {
            jobs: Jobs::new(),
            concurrency: limits.concurrency,
            decision: 0,
            pollers: 0,
            holders: 0,
            idle: Vec::new(),
            starting: false,
            closed: false,
            expires_at: None,
        };
        Self {
            limits,
            first_come: true,
            expires: false,
            state: OwnLine(Mutex::new(state)),
        }
    }

    /// Sets a rate for all jobs, or more than one class of them.
    pub fn with_precedence(self, rate: Option<Gcra>, classes: u8) -> Self {
        let first_come = rate.is_none() && classes <= 1;
        if !first_come {
            lock(&self.state).jobs.set_precedence(rate, classes);
        }
        Self { first_come, ..self }
    }

    /// Sets whether jobs expire.
    pub fn with_expiry(self, expires: bool) -> Self {
        Self { expires, ..self }
    }

    /// Returns whether a runner may go on with the next job of its lane without having asked.
    #[inline]
    pub fn is_first_come(&self) -> bool {
        self.first_come
    }

    /// Appends jobs, and returns how many wait now. Once the queue is closed, they stay in `jobs`.
    #[inline]
    pub fn push(&self, jobs: &mut Vec<T>) -> (usize, Recruit) {
        let mut state = lock(&self.state);
        if state.closed {
            return (0, Recruit::None);
        }
        if self.expires {
            let first = jobs.iter().filter_map(Ranked::expires_at).min();
            state.expires_at = state.expires_at.into_iter().chain(first).min();
        }
        state.jobs.extend(jobs.drain(..));
        let recruit = state.recruit(&self.limits);
        (state.jobs.len(), recruit)
    }

    /// Appends one job, or gives it back once the queue is closed.
    pub fn push_one(&self, job: T) -> Result<Recruit, T> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(job);
        }
        if self.expires {
            let at = job.expires_at();
            state.expires_at = state.expires_at.into_iter().chain(at).min();
        }
        state.jobs.push(job);
        Ok(state.recruit(&self.limits))
    }

    /// Recruits a runner, if a job waits that needs one.
    pub fn recruit(&self) -> Recruit {
        lock(&self.state).recruit(&self.limits)
    }

    /// Returns when to call [`take_expired`](Self::take_expired), if a job may expire. Jobs that a
    /// runner gives back for another one do not count: they were parked, and their lanes have
    /// timers for them.
    pub fn expires_at(&self) -> Option<u64> {
        lock(&self.state).expires_at
    }

    /// Takes out the jobs that must not start from `now` on. Returns them, and how many are left.
    pub fn take_expired(&self, now: u64) -> (Vec<T>, usize) {
        let mut state = lock(&self.state);
        let expired = state.jobs.take_expired(now);
        state.expires_at = state.jobs.first_expiry();
        (expired, state.jobs.len())
    }

    /// Takes out the jobs that are chosen, in their order. `chosen` runs under the lock.
    pub fn extract(&self, chosen: impl Fn(&T) -> bool) -> Vec<T> {
        lock(&self.state).jobs.extract(chosen)
    }

    /// Returns the next job of a poller. `first`: it was recruited, and begins. It leaves if a
    /// holder has come back meanwhile and taken its place.
    #[inline]
    pub fn take(&self, first: bool) -> Take<T> {
        let mut state = lock(&self.state);
        if first {
            state.starting = false;
            if state.pollers > self.limits.pollers {
                return state.leave(&self.limits);
            }
        }
        state.take(&self.limits)
    }

    /// Takes back a holder that is done with its handler and its lane: it polls again, unless there
    /// are enough pollers.
    pub fn come_back(&self) -> (Take<T>, Recruit) {
        let mut state = lock(&self.state);
        let has_place = state.has_place(&self.limits);
        state.holders -= 1;
        if !has_place {
            let recruit = state.recruit(&self.limits);
            return (state.idle_or_leave(&self.limits), recruit);
        }
        state.pollers += 1;
        (state.take(&self.limits), Recruit::None)
    }

    /// Puts the lane of a poller that used up its quantum at the back of the queue, and takes the
    /// front. If no other job waits, the lane goes on at once. `None`: nothing may start now, or
    /// too many runners are active, and the lane waits in the queue. A closed queue returns the
    /// job.
    pub fn rotate(&self, job: T) -> Result<Option<T>, T> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(job);
        }
        if state.is_over() {
            state.jobs.push(job);
            return Ok(None);
        }
        Ok(state.jobs.rotate(job))
    }

    /// Asks whether a poller may go on with the next job of its lane. Returns the job that it goes
    /// on with; `None`: nothing may go now, and the job waits here.
    pub fn go_on(&self, job: T) -> Result<Option<T>, T> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(job);
        }
        Ok(state.jobs.go_on(job))
    }

    /// Returns when the router has to call [`release`](Self::release), if a runner was refused.
    pub fn refused_until(&self) -> Option<Instant> {
        if self.first_come {
            return None;
        }
        lock(&self.state).jobs.refused_until()
    }

    /// Releases the job that the rate has held up, at its time.
    pub fn release(&self) -> Recruit {
        let mut state = lock(&self.state);
        state.jobs.release();
        state.recruit(&self.limits)
    }

    /// Makes a poller whose handler returned `Pending` a holder of that lane.
    pub fn hold(&self) -> Recruit {
        let mut state = lock(&self.state);
        state.pollers -= 1;
        state.holders += 1;
        // Many handlers that wait are where memory counts.
        state.jobs.shrink();
        state.recruit(&self.limits)
    }

    /// Asks whether a holder may poll the next handler of its lane. Returns `false` if there are
    /// enough pollers, or too many runners are active.
    pub fn resume(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.has_place(&self.limits) {
            return false;
        }
        state.holders -= 1;
        state.pollers += 1;
        true
    }

    /// Removes a runner that is gone without having asked: its task was dropped.
    pub fn lost(&self, role: Role, number: u32) -> Recruit {
        let mut state = lock(&self.state);
        match role {
            // Dropped before its first poll: by a runtime that is going away, which would drop the
            // next one in the same way, and so on without end.
            Role::Starting => {
                state.starting = false;
                state.pollers -= 1;
                return Recruit::None;
            }
            Role::Idle if state.forget(number) => {}
            // Not among the idle ones any more: it was made a poller and has not noticed.
            Role::Idle => {
                state.starting = false;
                state.pollers -= 1;
            }
            Role::Poller | Role::Recruiter => state.pollers -= 1,
            Role::Holder => state.holders -= 1,
            Role::Gone => {}
        }
        state.recruit(&self.limits)
    }

    /// Waits until this idle runner is made a poller. Ready with `false`: the runner has to leave.
    ///
    /// A recruiter removes the runner from the idle ones. So being absent is the wake-up: it cannot
    /// be lost or go to another runner. `waits` records whether this runner has joined the idle
    /// ones.
    pub fn poll_wake(&self, number: u32, waits: &mut bool, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = lock(&self.state);
        let entry = state.idle.iter().position(|idler| idler.number == number);
        match entry {
            None if *waits => Poll::Ready(true),
            _ if state.closed => {
                state.forget(number);
                Poll::Ready(false)
            }
            None => {
                *waits = true;
                let waker = cx.waker().clone();
                state.idle.push(Idler { number, waker });
                Poll::Pending
            }
            Some(at) => {
                state.idle[at].waker.clone_from(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Closes the queue: no job starts any more; those that waited come out, and idle runners
    /// leave.
    pub fn close(&self) -> VecDeque<T> {
        let mut state = lock(&self.state);
        state.closed = true;
        let jobs = state.jobs.take_all();
        let idle: Vec<_> = state.idle.iter().map(|idler| idler.waker.clone()).collect();
        drop(state);
        idle.into_iter().for_each(Waker::wake);
        jobs
    }

    /// Sets another limit; a decision older than the current one is ignored. No runner is dropped:
    /// those above a smaller limit become idle when they ask for a job. For a larger limit the
    /// first runner is recruited, and it recruits the next.
    pub fn set_concurrency(&self, concurrency: usize, decision: u64) -> Recruit {
        let mut state = lock(&self.state);
        if decision <= state.decision {
            return Recruit::None;
        }
        state.decision = decision;
        state.concurrency = concurrency;
        state.recruit(&self.limits)
    }

    /// Returns the current maximum of runners that may hold a permit.
    pub fn concurrency(&self) -> usize {
        lock(&self.state).concurrency
    }

    /// Returns the number of runners that hold a permit.
    pub fn active(&self) -> usize {
        let state = lock(&self.state);
        state.pollers + state.holders
    }

    /// Returns whether as many runners are active as may be.
    pub fn is_full(&self) -> bool {
        let state = lock(&self.state);
        state.pollers + state.holders >= state.concurrency
    }

    /// Returns the number of jobs that wait for a runner.
    pub fn waiting(&self) -> usize {
        lock(&self.state).jobs.len()
    }
}

/// The current activity of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was recruited, and has taken nothing yet.
    Starting,
    /// It takes jobs and polls each handler once.
    Poller,
    /// A poller that has recruited another one, or woken the driver of a source, and steps aside
    /// for it.
    Recruiter,
    /// It has become the task of its handler.
    Holder,
    /// It waits to be a poller again.
    Idle,
    /// It left by itself.
    Gone,
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    /// A job of this class, which expires at this time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Job(u8);

    impl Ranked for Job {
        fn class(&self) -> u8 {
            self.0
        }

        fn counts(&self) -> bool {
            true
        }

        fn expires_at(&self) -> Option<u64> {
            Some(u64::from(self.0))
        }
    }

    fn ready() -> Ready<Job> {
        Ready::new(RunnerLimits {
            concurrency: 2,
            pollers: 2,
            idle: 1,
        })
    }

    fn once_in_a_lifetime() -> Option<Gcra> {
        Some(Gcra::new(u64::MAX / 4, 1))
    }

    #[test]
    fn without_a_rate_and_classes_only_the_order_decides() {
        assert!(ready().is_first_come());
        assert!(ready().with_precedence(None, 1).is_first_come());
        assert!(!ready().with_precedence(None, 2).is_first_come());
        assert!(
            !ready()
                .with_precedence(once_in_a_lifetime(), 1)
                .is_first_come()
        );
        let plain = ready().with_precedence(None, 1);
        assert_eq!(plain.go_on(Job(3)), Ok(Some(Job(3))));
        assert_eq!(plain.refused_until(), None);
    }

    #[test]
    fn the_most_urgent_job_goes_first() {
        let ready = ready().with_precedence(None, 3);
        for class in [2, 0, 1] {
            let _ = ready.push_one(Job(class));
        }
        assert!(matches!(ready.take(true), Take::Aside(Recruit::Spawn)));
        assert!(matches!(ready.take(false), Take::Job(Job(0))));
        assert_eq!(ready.go_on(Job(1)), Ok(Some(Job(1))));
        assert_eq!(
            ready.go_on(Job(2)),
            Ok(Some(Job(1))),
            "a more urgent one waits"
        );
        assert_eq!(ready.rotate(Job(0)), Ok(Some(Job(0))));
        assert_eq!(ready.close(), [Job(2), Job(2)]);
        assert_eq!(ready.go_on(Job(1)), Err(Job(1)), "it is closed");
        assert_eq!(ready.rotate(Job(1)), Err(Job(1)));
    }

    #[test]
    fn what_has_expired_comes_out_at_its_time() {
        let ready = ready().with_expiry(true);
        assert_eq!(ready.expires_at(), None);
        let _ = ready.push(&mut vec![Job(8), Job(5), Job(6)]);
        let _ = ready.push(&mut vec![Job(7)]);
        assert_eq!(ready.expires_at(), Some(5));
        assert!(matches!(ready.take(true), Take::Aside(_)));
        assert!(matches!(ready.take(true), Take::Job(Job(8))));
        assert_eq!(ready.take_expired(6), (vec![Job(5), Job(6)], 1));
        assert_eq!(ready.expires_at(), Some(7));
        assert!(matches!(ready.take(false), Take::Job(Job(7))));
        assert_eq!(ready.expires_at(), Some(7), "it is looked at once more");
        assert_eq!(ready.take_expired(7), (Vec::new(), 0));
        assert_eq!(ready.expires_at(), None);
    }

    #[test]
    fn no_runner_comes_for_what_the_rate_refuses_until_it_is_released() {
        let ready = ready().with_precedence(once_in_a_lifetime(), 1);
        assert!(matches!(ready.push_one(Job(0)), Ok(Recruit::Spawn)));
        assert!(matches!(ready.take(true), Take::Job(Job(0))));
        assert_eq!(ready.go_on(Job(0)), Ok(None), "it waits for the rate");
        assert_eq!(ready.waiting(), 1);
        assert!(ready.refused_until().is_some());
        assert!(matches!(ready.push_one(Job(0)), Ok(Recruit::None)));
        assert!(matches!(ready.release(), Recruit::Spawn));
        assert_eq!(ready.refused_until(), None);
    }
}
