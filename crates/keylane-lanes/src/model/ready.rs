//! The ready queue against a list of jobs and a list of runners.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use crate::Ranked;
use crate::ready::{Ready, Recruit, Role, RunnerLimits, Take};

type Job = u32;

impl Ranked for Job {
    fn class(&self) -> u8 {
        0
    }

    fn counts(&self) -> bool {
        true
    }

    fn expires_at(&self) -> Option<u64> {
        None
    }
}

type Number = u32;

/// What a runner, or the environment, does next. The index picks a runner.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    PushOne,
    /// A runner does the next thing it can do, of those that are legal for it.
    Run(prop::sample::Index, Deed),
    /// The limit of active runners changes.
    Limit(usize),
    /// An older decision about the limit comes late.
    LateLimit(usize),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Asks for a job, or to be a poller again.
    Ask,
    /// Its handler returns `Pending`.
    Hold,
    /// Its lane goes on at once, and behind others.
    Rotate,
    /// Its task is dropped.
    Vanish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let deed = prop_oneof![
        8 => Just(Deed::Ask),
        4 => Just(Deed::Hold),
        2 => Just(Deed::Rotate),
        1 => Just(Deed::Vanish),
    ];
    let step = prop_oneof![
        20 => (0..4_usize).prop_map(Step::Push),
        20 => Just(Step::PushOne),
        100 => (any::<prop::sample::Index>(), deed).prop_map(|(index, deed)| Step::Run(index, deed)),
        4 => (1..5_usize).prop_map(Step::Limit),
        1 => (1..5_usize).prop_map(Step::LateLimit),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..150)
}

fn limits() -> impl Strategy<Value = RunnerLimits> {
    (1..5_usize, 1..4_usize, 0..3_usize).prop_map(|(concurrency, pollers, idle)| RunnerLimits {
        concurrency,
        pollers,
        idle,
    })
}

/// A runner as its own task sees it.
#[derive(Debug)]
struct Runner {
    role: Role,
    job: Option<Job>,
    /// Whether it has come among the idle ones.
    waits: bool,
    /// Whether it was made a poller and has not noticed.
    recruited: bool,
    woken: Arc<Woken>,
}

#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct World {
    limits: RunnerLimits,
    /// Most that may be active: the limit, or those that were when it shrank and have not rested
    /// yet.
    ceiling: usize,
    decision: u64,
    ready: Ready<Job>,
    /// What should be in the queue.
    jobs: VecDeque<Job>,
    runners: BTreeMap<Number, Runner>,
    next_job: Job,
    next_runner: Number,
    closed: bool,
}

impl World {
    fn new(limits: RunnerLimits) -> Self {
        Self {
            limits,
            ceiling: limits.concurrency,
            decision: 0,
            ready: Ready::new(limits),
            jobs: VecDeque::new(),
            runners: BTreeMap::new(),
            next_job: 0,
            next_runner: 0,
            closed: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push(count) => {
                let mut jobs: Vec<_> = (0..count).map(|_| self.new_job()).collect();
                let offered = jobs.clone();
                let (waiting, recruit) = self.ready.push(&mut jobs);
                if self.closed {
                    assert_eq!(jobs, offered, "a closed queue takes nothing");
                } else {
                    self.jobs.extend(offered);
                    assert_eq!(waiting, self.jobs.len());
                }
                self.recruit(recruit);
            }
            Step::PushOne => {
                let job = self.new_job();
                self.push_one(job);
            }
            Step::Run(index, deed) => {
                let numbers: Vec<_> = self.runners.keys().copied().collect();
                if !numbers.is_empty() {
                    let number = numbers[index.index(numbers.len())];
                    self.run(number, deed);
                }
            }
            Step::Limit(limit) => {
                self.decision += 1;
                self.limits.concurrency = limit;
                self.ceiling = limit.max(self.active());
                let recruit = self.ready.set_concurrency(limit, self.decision);
                self.recruit(recruit);
            }
            Step::LateLimit(limit) => {
                let recruit = self.ready.set_concurrency(limit, self.decision);
                assert!(
                    matches!(recruit, Recruit::None),
                    "it is no decision any more"
                );
            }
            Step::Close => {
                self.closed = true;
                assert_eq!(
                    self.ready.close(),
                    self.jobs,
                    "what waited comes out, in order"
                );
                self.jobs.clear();
                for (number, runner) in &self.runners {
                    let is_idle = runner.role == Role::Idle && runner.waits;
                    let is_woken = runner.woken.0.load(Ordering::Relaxed);
                    assert!(
                        is_woken || !is_idle,
                        "idle runner {number} would never leave"
                    );
                }
            }
        }
    }

    fn new_job(&mut self) -> Job {
        self.next_job += 1;
        self.next_job
    }

    fn push_one(&mut self, job: Job) {
        match self.ready.push_one(job) {
            Ok(recruit) => {
                assert!(!self.closed);
                self.jobs.push_back(job);
                self.recruit(recruit);
            }
            Err(back) => {
                assert!(self.closed);
                assert_eq!(back, job);
            }
        }
    }

    /// Lets a runner do something, if it can in its role.
    fn run(&mut self, number: Number, deed: Deed) {
        let runner = &self.runners[&number];
        let (role, job) = (runner.role, runner.job);
        match (role, deed) {
            // A task that was never polled vanishes only with its runtime.
            (Role::Starting, Deed::Vanish) if !self.closed && !runner.recruited => {}
            (_, Deed::Vanish) => {
                let knows = if runner.recruited { Role::Idle } else { role };
                self.runners.remove(&number);
                let recruit = self.ready.lost(knows, number);
                self.recruit(recruit);
            }
            (Role::Idle, _) => self.poll_wake(number),
            (Role::Starting, _) => {
                if runner.recruited {
                    self.poll_wake(number);
                }
                self.take(number, true);
            }
            (Role::Poller, Deed::Hold) if job.is_some() => {
                let recruit = self.ready.hold();
                self.runner(number).role = Role::Holder;
                self.recruit(recruit);
            }
            (Role::Poller, Deed::Rotate) if job.is_some() => self.rotate(number),
            (Role::Poller | Role::Recruiter, _) => self.take(number, false),
            (Role::Holder, Deed::Hold) => {}
            (Role::Holder, Deed::Rotate) if job.is_some() => self.go_on(number),
            (Role::Holder, _) => self.come_back(number),
            (Role::Gone, _) => unreachable!("who has left is not listed"),
        }
    }

    fn take(&mut self, number: Number, first: bool) {
        let is_one_too_many = first && self.pollers() > self.limits.pollers;
        let taken = self.ready.take(first);
        if is_one_too_many {
            return self.rest(number, taken);
        }
        self.taken(number, taken);
    }

    /// What a poller got that asked for a job.
    fn taken(&mut self, number: Number, taken: Take<Job>) {
        if let Take::Aside(recruit) = taken {
            assert!(self.jobs.len() > 1, "it steps aside for no other job");
            assert!(
                !matches!(recruit, Recruit::None),
                "it steps aside for no other job"
            );
            self.runner(number).role = Role::Poller;
            return self.recruit(recruit);
        }
        let front = if self.is_over() {
            None
        } else {
            self.jobs.pop_front()
        };
        let runner = self.runner(number);
        runner.job = front;
        runner.role = Role::Poller;
        match taken {
            Take::Job(job) => {
                assert_eq!(Some(job), front, "jobs are taken in the order of the queue");
            }
            rest => {
                assert_eq!(front, None, "a job waits, and the poller got none");
                self.rest(number, rest);
            }
        }
    }

    fn rest(&mut self, number: Number, rest: Take<Job>) {
        let runner = self.runner(number);
        runner.job = None;
        match rest {
            Take::Job(job) => panic!("{job} came to a runner that did not ask"),
            Take::Aside(_) => panic!("a runner that takes nothing steps aside"),
            Take::Idle => {
                runner.role = Role::Idle;
                runner.waits = false;
                assert!(!self.closed, "no runner waits at a closed queue");
                // Its task comes among the idle ones before it lets others run.
                self.poll_wake(number);
            }
            Take::Leave => {
                self.runners.remove(&number);
                let idle = self.idle();
                assert!(
                    self.closed || idle >= self.limits.idle,
                    "it left with {idle} idle"
                );
                let recruit = self.ready.lost(Role::Gone, number);
                self.recruit(recruit);
            }
        }
    }

    fn rotate(&mut self, number: Number) {
        let job = self.runner(number).job.take().expect("it has a job");
        let is_over = self.is_over();
        match self.ready.rotate(job) {
            Ok(None) => {
                assert!(is_over, "nothing came out, and there is a permit");
                self.jobs.push_back(job);
            }
            Ok(Some(front)) => {
                assert!(!is_over, "a job came out, and there are too many active");
                self.jobs.push_back(job);
                assert_eq!(Some(front), self.jobs.pop_front());
                self.runner(number).job = Some(front);
            }
            Err(back) => {
                assert!(self.closed);
                assert_eq!(back, job);
            }
        }
    }

    /// The handler of a holder is done, and there is a next message in its lane.
    fn go_on(&mut self, number: Number) {
        let has_place = self.has_place();
        let again = self.ready.resume();
        assert_eq!(again, has_place);
        if again {
            self.runner(number).role = Role::Poller;
        } else if let Some(job) = self.runner(number).job.take() {
            // Its lane goes on, with another runner.
            self.push_one(job);
        }
    }

    /// The handler of a holder is done, and its lane is in other hands or gone.
    fn come_back(&mut self, number: Number) {
        let has_place = self.has_place();
        let (taken, recruit) = self.ready.come_back();
        self.runner(number).job = None;
        if has_place {
            assert!(matches!(recruit, Recruit::None), "it polls itself");
            self.runner(number).role = Role::Poller;
            self.taken(number, taken);
        } else {
            // Not active any more when another runner is recruited in its place.
            self.runner(number).role = Role::Gone;
            self.recruit(recruit);
            self.rest(number, taken);
        }
    }

    fn poll_wake(&mut self, number: Number) {
        let woken = Arc::clone(&self.runner(number).woken);
        let waker = Waker::from(Arc::clone(&woken));
        let mut waits = self.runner(number).waits;
        let polled = self
            .ready
            .poll_wake(number, &mut waits, &mut Context::from_waker(&waker));
        self.runner(number).waits = waits;
        let recruited = std::mem::take(&mut self.runner(number).recruited);
        assert_eq!(
            polled == Poll::Ready(true),
            recruited,
            "{polled:?} for runner {number}"
        );
        match polled {
            Poll::Pending => assert!(waits && !self.closed, "no runner waits at a closed queue"),
            Poll::Ready(true) => {}
            Poll::Ready(false) => {
                assert!(self.closed);
                self.runners.remove(&number);
            }
        }
    }

    /// Carries out what the queue has decided.
    fn recruit(&mut self, recruit: Recruit) {
        let number = match recruit {
            Recruit::None => return,
            Recruit::Full => {
                assert!(self.active() >= self.limits.concurrency && !self.jobs.is_empty());
                return;
            }
            Recruit::Spawn => {
                let idle = self.idle();
                assert_eq!(idle, 0, "a task was started beside an idle one");
                self.next_runner += 1;
                let runner = Runner {
                    role: Role::Starting,
                    job: None,
                    waits: false,
                    recruited: false,
                    woken: Arc::default(),
                };
                self.runners.insert(self.next_runner, runner);
                return;
            }
            Recruit::Wake(waker) => {
                waker.wake();
                let mut woken = self.runners.iter().filter(|(_, runner)| {
                    runner.role == Role::Idle && runner.woken.0.load(Ordering::Relaxed)
                });
                let number = *woken.next().expect("the waker is an idle runner's").0;
                assert_eq!(woken.count(), 0, "one is woken for one recruit");
                number
            }
        };
        // It is a poller from now on, and finds that out whenever it is polled.
        let runner = self.runner(number);
        runner.woken.0.store(false, Ordering::Relaxed);
        runner.role = Role::Starting;
        runner.recruited = true;
    }

    fn runner(&mut self, number: Number) -> &mut Runner {
        self.runners.get_mut(&number).expect("it is listed")
    }

    fn count(&self, is: impl Fn(Role) -> bool) -> usize {
        self.runners
            .values()
            .filter(|runner| is(runner.role))
            .count()
    }

    fn active(&self) -> usize {
        self.count(|role| matches!(role, Role::Starting | Role::Poller | Role::Holder))
    }

    fn pollers(&self) -> usize {
        self.count(|role| matches!(role, Role::Starting | Role::Poller))
    }

    /// Whether a holder that comes back may take jobs.
    fn has_place(&self) -> bool {
        self.count(|role| role == Role::Poller) < self.limits.pollers && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.active() > self.limits.concurrency
    }

    fn idle(&self) -> usize {
        self.count(|role| role == Role::Idle)
    }

    /// What is true after every step.
    fn check(&mut self) {
        let starting = self.count(|role| role == Role::Starting);
        let pollers = starting + self.count(|role| role == Role::Poller);
        let active = pollers + self.count(|role| role == Role::Holder);
        assert_eq!(
            self.ready.active(),
            active,
            "permits in use are runners that hold one"
        );
        assert_eq!(self.ready.waiting(), self.jobs.len());
        let most = self.limits.pollers + starting;
        assert!(
            pollers <= most,
            "{pollers} pollers, {starting} of them starting"
        );
        assert_eq!(self.ready.concurrency(), self.limits.concurrency);
        assert!(active <= self.ceiling, "{active} active");
        self.ceiling = active.max(self.limits.concurrency);
        assert!(starting <= 1, "runners are recruited one at a time");
        assert!(self.idle() <= self.limits.idle, "{} idle", self.idle());
        let comes =
            starting > 0 || pollers >= self.limits.pollers || active >= self.limits.concurrency;
        assert!(
            self.jobs.is_empty() || comes,
            "jobs wait, and no runner comes"
        );
    }

    /// All runners go on until nothing is left to do.
    fn run_out(&mut self) {
        for _ in 0..10_000 {
            let busy = |runner: &Runner| runner.role != Role::Idle;
            let Some(number) = self.runners.iter().find(|(_, r)| busy(r)).map(|(n, _)| *n) else {
                break;
            };
            // Its handler is done, and its lane is empty.
            self.runner(number).job = None;
            self.run(number, Deed::Ask);
            self.check();
        }
        assert!(self.jobs.is_empty(), "jobs were forgotten");
        assert_eq!(self.ready.active(), 0, "a permit was not given back");
    }
}

proptest! {
    #![proptest_config(testkit_cases::cases(1_000))]

    #[test]
    fn no_runner_is_forgotten(limits in limits(), steps in steps()) {
        let mut world = World::new(limits);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.run_out();
    }
}
