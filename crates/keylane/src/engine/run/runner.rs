//! A runner: its place among the runners, which is returned when its task ends.

use std::future::poll_fn;

use keylane_lanes::{Role, Take};
use keylane_rt::{self as rt, Arc, clock};

use super::head::Head;
use crate::engine::Engine;
use crate::engine::intake::Turned;
use crate::engine::message::{Job, Queued};
use crate::engine::settlement::Tally;
use crate::handler::Context;
use crate::types::Spec;

/// A runner's place among the runners.
///
/// It is made before the task is spawned and moved into it. So a task that is dropped before its
/// first poll returns its place, too.
pub(crate) struct Runner<T: Spec> {
    engine: Arc<Engine<T>>,
    number: u32,
    /// How many messages of one lane a runner runs in a row before the lane goes to the back of the
    /// ready queue.
    quantum: u32,
    tally: Tally,
    role: Role,
    /// How many jobs run before the task checks its Tokio budget again.
    fresh: u8,
}

/// A job is a small part of what Tokio's budget counts as one operation.
const JOBS_PER_OPERATION: u8 = if cfg!(keylane_shuttle) { 1 } else { 4 };

impl<T: Spec> Runner<T> {
    pub(crate) fn new(engine: Arc<Engine<T>>, number: u32) -> Self {
        Self {
            engine,
            number,
            quantum: 0,
            tally: Tally::default(),
            role: Role::Starting,
            fresh: JOBS_PER_OPERATION,
        }
    }

    #[inline]
    pub(super) fn engine(&self) -> &Arc<Engine<T>> {
        &self.engine
    }

    /// The engine, and the tally of what this runner has settled.
    #[inline]
    pub(super) fn settling(&mut self) -> (&Arc<Engine<T>>, &mut Tally) {
        (&self.engine, &mut self.tally)
    }

    /// The context for the handlers of this runner.
    pub(super) fn context(&self) -> Context<T::Key> {
        Context::new(Arc::clone(&self.engine.runners.details))
    }

    #[inline]
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether the job of this runner has returned `Pending`.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.role == Role::Holder
    }

    /// Whether this task should yield before its next job.
    #[inline]
    pub(super) fn should_yield(&mut self) -> bool {
        self.fresh -= 1;
        if self.fresh > 0 {
            return false;
        }
        self.fresh = JOBS_PER_OPERATION;
        !rt::spend_budget()
    }

    /// Whether this task must yield to a runner, or to a driver, that it woke.
    #[inline]
    pub(super) fn must_step_aside(&mut self) -> bool {
        if self.role == Role::Recruiter {
            self.role = Role::Poller;
            return true;
        }
        self.role == Role::Holder
    }

    pub(super) fn flush(&mut self) {
        self.engine.settlement.flush(&mut self.tally);
    }

    /// The next job for a poller, or for a holder whose lane is with another runner. `None`: the
    /// role has changed.
    #[inline]
    pub(super) fn take(&mut self, context: &mut Context<T::Key>) -> Option<Job<T>> {
        if self.role == Role::Holder {
            return self.come_back(context);
        }
        let first = self.role == Role::Starting;
        self.role = Role::Poller;
        self.quantum = self.engine.settings.quantum;
        let taken = self.engine.ready.take(first);
        self.follow(context, taken)
    }

    /// Waits, idle, to become a poller again. False: the runner ends.
    pub(super) async fn woken(&mut self) -> bool {
        let (ready, mut waits) = (&self.engine.ready, false);
        let number = self.number;
        let woken = poll_fn(|cx| ready.poll_wake(number, &mut waits, cx)).await;
        self.role = if woken { Role::Starting } else { Role::Gone };
        woken
    }

    /// The handler returned `Pending`. The first time, this runner becomes the holder of its lane.
    #[inline]
    pub(super) fn hold(&mut self, head: Head<'_, T::Key>) {
        if self.role != Role::Holder {
            self.begin_to_hold(head);
        }
    }

    fn begin_to_hold(&mut self, head: Head<'_, T::Key>) {
        self.role = Role::Holder;
        // Settlements must not wait for this handler.
        self.flush();
        let recruit = self.engine.ready.hold();
        self.engine.recruit(recruit);
        let Head {
            key,
            hash,
            attempt,
            accepted_at,
        } = head;
        if let Some(key) = key {
            let now = clock::now();
            self.engine
                .table
                .lanes
                .with(hash, key, |lane| lane.suspend(now, attempt, accepted_at));
            let since = self.engine.clocks.stamp(now);
            self.engine.probe.hot_keys.waiting(self.number, hash, since);
        }
    }

    /// Decides who runs the next job of the key: this runner now, or another one later.
    #[inline]
    pub(super) fn proceed(
        &mut self,
        context: &mut Context<T::Key>,
        next: Option<Queued<T>>,
    ) -> Option<Job<T>> {
        if self.role == Role::Holder {
            self.engine.probe.hot_keys.ready(self.number);
            match next {
                Some(next) if !self.poll_again() => {
                    if self.engine.enqueue(next) {
                        // It steps aside for the recruit, and comes back then.
                        return None;
                    }
                    return self.come_back(context);
                }
                None => return self.come_back(context),
                Some(_) => {}
            }
        }
        let woke_driver = self.engine.settlement.flush_some(&mut self.tally);
        let next = next?;
        // Tokio polls a woken task on the worker that woke it, after this one. If nothing else is
        // ready, what comes next comes from the driver, so this runner lets it go first.
        if woke_driver && self.engine.ready.waiting() == 0 {
            self.role = Role::Recruiter;
            self.engine.enqueue(next);
            return None;
        }
        if self.should_yield() {
            self.fresh = 1;
            self.engine.enqueue(next);
            return None;
        }
        self.quantum -= 1;
        let goes_on = self.quantum > 0;
        if goes_on && self.engine.ready.is_first_come() {
            return self.start(context, next);
        }
        let chosen = if goes_on {
            self.engine.ready.go_on(next)
        } else {
            self.quantum = self.engine.settings.quantum;
            self.engine.ready.rotate(next)
        };
        match chosen {
            Ok(front) => self.start(context, front?),
            Err(closed) => {
                self.engine.table.hand_back_queued(closed);
                None
            }
        }
    }

    /// Lets a queued job start, unless the dispatcher is ending and hands it back. For a lane that
    /// is scheduled, asks the lane what starts. For the turn of a stripe, takes it.
    ///
    /// This check is made for every job, in addition to closing the ready queue. While runners
    /// already see the end, the router may still place a message behind one of its key that a
    /// runner has handed back. That message must not start.
    #[inline]
    fn start(&mut self, context: &mut Context<T::Key>, queued: Queued<T>) -> Option<Job<T>> {
        let ends = self.engine.shutdown.hands_back();
        match queued {
            Queued::Job(job) if !ends && !self.engine.slow_path.takes_slow_path() => {
                self.admit(context, job)
            }
            queued => self.start_slowly(context, queued, ends),
        }
    }

    #[inline(never)]
    fn start_slowly(
        &mut self,
        context: &mut Context<T::Key>,
        queued: Queued<T>,
        ends: bool,
    ) -> Option<Job<T>> {
        if let Queued::Turn(stripe) = queued {
            return match self.engine.take_turn(stripe) {
                Turned::Starts(next) => self.start(context, next),
                Turned::Placed { recruited: true } => {
                    self.role = Role::Recruiter;
                    None
                }
                Turned::Placed { recruited: false } => None,
            };
        }
        if ends {
            self.engine.table.hand_back_queued(queued);
            return None;
        }
        let job = self.engine.starts.choose(&mut self.tally, queued)?;
        self.admit(context, job)
    }

    /// Asks the source and the lease of a job, where one of them has a say before it starts.
    #[inline]
    fn admit(&mut self, context: &mut Context<T::Key>, job: Job<T>) -> Option<Job<T>> {
        match self.engine.slow_path.guards_starts() {
            true => self.engine.starts.admit(&mut self.tally, context, job),
            false => Some(job),
        }
    }

    fn poll_again(&mut self) -> bool {
        let again = self.engine.ready.resume();
        if again {
            self.role = Role::Poller;
        }
        again
    }

    /// A holder whose lane is with another runner, or removed, becomes a poller again or leaves.
    #[inline]
    fn come_back(&mut self, context: &mut Context<T::Key>) -> Option<Job<T>> {
        self.role = Role::Poller;
        self.quantum = self.engine.settings.quantum;
        self.engine.settlement.flush_some(&mut self.tally);
        let (taken, recruit) = self.engine.ready.come_back();
        self.engine.recruit(recruit);
        self.follow(context, taken)
    }

    #[inline]
    fn follow(&mut self, context: &mut Context<T::Key>, taken: Take<Queued<T>>) -> Option<Job<T>> {
        match taken {
            Take::Job(queued) => return self.start(context, queued),
            Take::Aside(recruit) => {
                self.role = Role::Recruiter;
                self.engine.recruit(recruit);
            }
            Take::Idle => self.role = Role::Idle,
            Take::Leave => self.role = Role::Gone,
        }
        self.flush();
        if self.engine.stripes.are_used() && self.engine.ready.is_full() {
            self.engine.stripes.ask_router();
        }
        if !self.engine.ready.is_first_come() {
            self.wake_router_if_refused();
        }
        None
    }

    /// Wakes the router, which starts the jobs that the rate holds back.
    #[cold]
    fn wake_router_if_refused(&self) {
        let is_refused = self.engine.ready.refused_until().is_some();
        if is_refused {
            self.engine.shutdown.wake_router();
        }
    }
}

impl<T: Spec> Drop for Runner<T> {
    fn drop(&mut self) {
        let Self { role, number, .. } = *self;
        if role == Role::Holder {
            self.engine.probe.hot_keys.ready(number);
        }
        if std::thread::panicking() {
            // Panics of handlers are caught. This one came from a key's own `Eq`, `Clone` or
            // `Drop`, or from a subscriber of logs, and the runner's job is lost.
            self.engine.settlement.count_lost_messages();
        }
        self.flush();
        let recruit = self.engine.ready.lost(role, number);
        // From now on another runner may get this number.
        self.engine.runners.remove(number);
        self.engine.recruit(recruit);
        self.engine.shutdown.wake_router();
        self.engine.end_orphaned();
    }
}
