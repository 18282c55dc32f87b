//! The state of a world: what its threads are about to do, and where each message is.

use std::hash::{Hash, Hasher};

use super::programs::{End, Kind, MESSAGES, Program, RUNNERS, SENDERS, STRIPES};
use crate::stripe::Call;

pub(super) const CLOSER: usize = SENDERS;
pub(super) const ROUTER: usize = SENDERS + 1;
/// The first runner.
pub(super) const FIRST: usize = SENDERS + 2;
pub(super) const THREADS: usize = FIRST + RUNNERS;

/// A short list. What is behind its end is 0, so that equal lists are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct List {
    len: u8,
    items: [u8; 6],
}

impl List {
    pub(super) fn push(&mut self, item: u8) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) -> u8 {
        let item = self.items[at];
        self.len -= 1;
        let len = usize::from(self.len);
        self.items.copy_within(at + 1..=len, at);
        self.items[len] = 0;
        item
    }

    pub(super) fn pop_front(&mut self) -> Option<u8> {
        (self.len > 0).then(|| self.remove(0))
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.items[..usize::from(self.len)]
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// Where a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Status {
    #[default]
    Unsent,
    /// In a stripe, or in the batch of a turn.
    Accepted,
    /// Behind the head of its lane.
    Parked,
    /// The head of its lane: in the ready queue, or with the one who brings it there.
    Out,
    Running,
    Settled,
    HandedBack,
    Refused,
}

impl Status {
    /// Whether nothing will happen to it any more.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Settled | Self::HandedBack | Self::Refused)
    }
}

/// The stage of the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stage {
    #[default]
    Open,
    Draining,
    Closing,
}

/// How a turn is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// By a runner that has taken the entry.
    Entry,
    /// By the router, which was asked.
    Router,
    /// By a thread that can recruit no runner any more.
    Rest,
}

/// What a thread does next: one operation under one lock, and what it does alone after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Op {
    #[default]
    None,
    Push(u8),
    /// Looks at the stage before it carries out a call.
    CarryOut {
        at: u8,
        enters: bool,
    },
    EnterTurn(u8),
    Recruit,
    AskRouter,
    TakeTurn {
        at: u8,
        by: By,
    },
    Place {
        at: u8,
        by: By,
    },
    PushJobs {
        at: u8,
        by: By,
    },
    GiveBack {
        at: u8,
        by: By,
    },
    /// The runner steps aside if its turn has recruited a runner.
    TurnEnds,
    /// `counts`: it has a turn, and steps aside if this recruits a runner.
    Enqueue {
        message: u8,
        counts: bool,
    },
    HandBack(u8),
    PollWake,
    Take,
    AskIfFull,
    /// Looks at the stage before a handler is called.
    Start(u8),
    Hold,
    /// The handler has returned `Pending`.
    Yield,
    EndHandler(u8),
    Resume(u8),
    ComeBack,
    Lost,
    Gone,
    Listen,
    FollowStage,
    CloseStripe(u8),
    CloseReady {
        is_last: bool,
    },
    HandBackParked,
    TakeTurns,
    HandOver,
    Enter(Stage),
}

/// What a thread is going to do, the next at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    len: u8,
    ops: [Op; 10],
}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ops[..usize::from(self.len)].hash(state);
    }
}

impl Plan {
    pub(super) fn next(&self) -> Option<Op> {
        self.len
            .checked_sub(1)
            .map(|last| self.ops[usize::from(last)])
    }

    pub(super) fn contains(&self, op: Op) -> bool {
        self.ops[..usize::from(self.len)].contains(&op)
    }

    pub(super) fn pop(&mut self) -> Option<Op> {
        let op = self.next()?;
        self.len -= 1;
        Some(op)
    }

    pub(super) fn push(&mut self, op: Op) {
        self.ops[usize::from(self.len)] = op;
        self.len += 1;
    }
}

/// What a runner is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Role {
    #[default]
    Absent,
    Starting,
    Poller,
    /// It steps aside before it asks for a job.
    Recruiter,
    Holder,
    Idle,
    /// It was idle and is a poller now. It has not noticed.
    Woken,
    Leaving,
}

impl Role {
    pub(super) fn is_starting(self) -> bool {
        matches!(self, Self::Starting | Self::Woken)
    }

    pub(super) fn is_active(self) -> bool {
        self.is_starting() || matches!(self, Self::Poller | Self::Recruiter | Self::Holder)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pub(super) plan: Plan,
    /// It waits for its waker.
    pub(super) sleeps: bool,
    pub(super) woken: bool,
    pub(super) role: Role,
    /// Its turn has recruited a runner.
    pub(super) recruited: bool,
    /// The task that it woke last, which cannot run before this thread yields.
    pub(super) behind: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct StripeState {
    pub(super) messages: List,
    pub(super) batch: List,
    pub(super) jobs: List,
    pub(super) is_taken: bool,
    pub(super) is_called: bool,
    pub(super) is_entered: bool,
    pub(super) closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) is_there: bool,
    pub(super) parked: List,
}

/// The state of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) messages: [Status; MESSAGES],
    pub(super) sent: [u8; SENDERS],
    /// The messages of each key, as its stripe has accepted them.
    pub(super) accepted: [List; 2],
    pub(super) stripes: [StripeState; STRIPES],
    pub(super) lanes: [Lane; 2],
    pub(super) queue: List,
    pub(super) idle: List,
    pub(super) queue_is_closed: bool,
    pub(super) threads: [Thread; THREADS],
    pub(super) stage: Stage,
    pub(super) asked: bool,
    /// The stage that the router has acted on.
    pub(super) seen: Stage,
    pub(super) jobs: List,
    pub(super) intake_ended: bool,
    pub(super) router_ended: bool,
}

impl State {
    pub(super) fn new(program: &Program) -> Self {
        let mut state = Self::default();
        let stages: &[Stage] = match program.end {
            End::Never | End::LastHandle => &[],
            End::Drain => &[Stage::Draining],
            End::HandBack => &[Stage::Closing],
            End::Both => &[Stage::Closing, Stage::Draining],
        };
        for stage in stages {
            state.threads[CLOSER].plan.push(Op::Enter(*stage));
        }
        state
    }

    /// The same state, whatever the numbers of its runners are.
    pub(super) fn sorted(&self, rank: impl Fn(&Thread) -> u64) -> Self {
        let mut order: [usize; RUNNERS] = std::array::from_fn(|at| at);
        order.sort_by_cached_key(|at| {
            let runner = &self.threads[FIRST + at];
            (runner.role == Role::Absent, rank(runner))
        });
        let mut places = [0; RUNNERS];
        for (place, at) in order.into_iter().enumerate() {
            places[at] = place;
        }
        let mut sorted = *self;
        for (at, place) in places.into_iter().enumerate() {
            let mut runner = self.threads[FIRST + at];
            if let Some(behind) = usize::from(runner.behind).checked_sub(FIRST) {
                runner.behind = (FIRST + places[behind]) as u8;
            }
            sorted.threads[FIRST + place] = runner;
        }
        for idle in &mut sorted.idle.items[..self.idle.len()] {
            *idle = places[usize::from(*idle)] as u8;
        }
        sorted
    }

    pub(super) fn runners(&self) -> impl Iterator<Item = (usize, &Thread)> {
        self.threads.iter().enumerate().skip(FIRST)
    }

    pub(super) fn count(&self, is: impl Fn(Role) -> bool) -> usize {
        self.runners().filter(|(_, runner)| is(runner.role)).count()
    }

    pub(super) fn status(&mut self, message: u8) -> &mut Status {
        &mut self.messages[usize::from(message)]
    }

    /// Whether this thread can take a step.
    pub(super) fn can_step(&self, program: &Program, thread: usize) -> bool {
        let Some(op) = self.threads[thread].plan.next() else {
            return false;
        };
        let Thread { sleeps, woken, .. } = self.threads[thread];
        if (sleeps && !woken) || self.is_behind(thread) {
            return false;
        }
        match op {
            Op::EndHandler(message) if program.message(message).kind == Kind::Blocks => {
                self.is_alone(program, message)
            }
            // More runners than the limit could become idle, without end.
            Op::Take | Op::ComeBack => self.others_are_idle(thread),
            _ => true,
        }
    }

    /// Whether all others that become idle have come among the idle ones.
    fn others_are_idle(&self, thread: usize) -> bool {
        let comes = |(at, other): (usize, &Thread)| {
            at != thread && other.role == Role::Idle && !other.sleeps
        };
        !self.runners().any(comes)
    }

    /// Whether a runner that has not yielded woke this task last.
    fn is_behind(&self, thread: usize) -> bool {
        let behind = |runner: &Thread| usize::from(runner.behind) == thread && runner.behind > 0;
        self.threads[FIRST..].iter().any(behind)
    }

    /// Whether all messages have settled that are not behind this one in its lane.
    fn is_alone(&self, program: &Program, message: u8) -> bool {
        let key = program.message(message).key;
        let accepted = self.accepted[usize::from(key)];
        let is_earlier = |other: u8| {
            let before = accepted.all().iter().take_while(|m| **m != message);
            before.into_iter().any(|m| *m == other)
        };
        (0..program.messages.len() as u8).all(|other| {
            self.messages[usize::from(other)].is_over()
                || other == message
                || (program.message(other).key == key && !is_earlier(other))
        })
    }

    pub(super) fn call_of(at: u8, call: Call) -> Option<Op> {
        let enters = call == Call::Enter;
        (call != Call::None).then_some(Op::CarryOut { at, enters })
    }
}
