//! The stripes and the ready queue that are explored, and the record of what was done to them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::programs::{Program, RUNNERS, STRIPES};
use crate::ready::{Ready, Recruit, Role, RunnerLimits, Take};
use crate::stripe::{Call, Stripe};
use crate::{Gcra, Ranked};

/// Most messages placed in one turn.
const TURN: usize = 2;

/// An entry of the ready queue: a message, or the turn of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u8);

/// The first entry that is the turn of a stripe.
pub(super) const TURNS: u8 = 8;

impl Ranked for Entry {
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

/// One operation on a stripe or on the ready queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Nothing,
    Push { at: u8, message: u8 },
    TakeTurn { at: u8, by_entry: bool },
    GiveBack { at: u8 },
    Close { at: u8 },
    PushOne(u8),
    PushJobs { jobs: [u8; TURN], count: u8 },
    Recruit,
    Take { first: bool },
    Hold,
    Resume,
    ComeBack,
    PollWake { runner: u8, waits: bool },
    Lost(u8),
    CloseReady,
}

/// Whether an idle runner was woken.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The wakers of the runners. All worlds use the same ones.
pub(super) struct Wakers {
    woken: [Arc<Woken>; RUNNERS],
    wakers: [Waker; RUNNERS],
}

impl Wakers {
    pub(super) fn new() -> Self {
        let woken: [Arc<Woken>; RUNNERS] = Default::default();
        let wakers = std::array::from_fn(|at| Waker::from(Arc::clone(&woken[at])));
        Self { woken, wakers }
    }

    /// The next runner that was woken since it was asked for.
    pub(super) fn next_woken(&self) -> Option<usize> {
        let is_woken = |woken: &Arc<Woken>| woken.0.swap(false, Ordering::Relaxed);
        self.woken.iter().position(is_woken)
    }
}

/// The objects that are explored.
pub(super) struct Real<'a> {
    stripes: [Stripe<u8, Vec<u8>>; STRIPES],
    ready: Ready<Entry>,
    /// The benches that are out.
    benches: [Option<Vec<u8>>; STRIPES],
    pub(super) wakers: &'a Wakers,
    /// The last operation.
    pub(super) deed: Deed,
}

impl<'a> Real<'a> {
    pub(super) fn new(program: &Program, wakers: &'a Wakers) -> Self {
        let ready = Ready::new(RunnerLimits {
            concurrency: program.concurrency,
            pollers: program.pollers,
            idle: 1,
        });
        Self {
            stripes: std::array::from_fn(|_| Stripe::new(Vec::new())),
            ready: ready.with_precedence(None::<Gcra>, 1),
            benches: [None, None],
            wakers,
            deed: Deed::Nothing,
        }
    }

    /// Does what was done before. What follows from it is known.
    pub(super) fn redo(&mut self, deed: Deed) {
        match deed {
            Deed::Nothing => {}
            Deed::Push { at, message } => drop(self.push(at, message)),
            Deed::TakeTurn { at, by_entry } => drop(self.take_turn(at, by_entry)),
            Deed::GiveBack { at } => drop(self.give_back(at)),
            Deed::Close { at } => self.close(at),
            Deed::PushOne(entry) => drop(self.push_one(entry)),
            Deed::PushJobs { jobs, count } => drop(self.push_jobs(&jobs[..usize::from(count)])),
            Deed::Recruit => drop(self.recruit()),
            Deed::Take { first } => drop(self.take(first)),
            Deed::Hold => drop(self.hold()),
            Deed::Resume => drop(self.resume()),
            Deed::ComeBack => drop(self.come_back()),
            Deed::PollWake { runner, waits } => drop(self.poll_wake(runner, waits)),
            Deed::Lost(runner) => drop(self.lost(runner)),
            Deed::CloseReady => drop(self.close_ready()),
        }
    }

    pub(super) fn push(&mut self, at: u8, message: u8) -> Result<Call, u8> {
        self.deed = Deed::Push { at, message };
        self.stripes[usize::from(at)].push(message)
    }

    /// True: the turn was taken. The messages are in the bench.
    pub(super) fn take_turn(&mut self, at: u8, by_entry: bool) -> bool {
        self.deed = Deed::TakeTurn { at, by_entry };
        let at = usize::from(at);
        let bench = self.stripes[at].take_turn(by_entry, TURN, |bench| bench);
        let is_taken = bench.is_some();
        if is_taken {
            assert!(self.benches[at].is_none(), "two turns of one stripe");
            self.benches[at] = bench;
        }
        is_taken
    }

    /// What was taken with the turn.
    pub(super) fn batch(&self, at: u8) -> &[u8] {
        self.benches[usize::from(at)].as_deref().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, at: u8) -> Call {
        self.deed = Deed::GiveBack { at };
        let at = usize::from(at);
        let mut bench = self.benches[at].take().expect("it was taken");
        bench.clear();
        self.stripes[at].give_back(bench)
    }

    pub(super) fn close(&mut self, at: u8) {
        self.deed = Deed::Close { at };
        self.stripes[usize::from(at)].close();
    }

    pub(super) fn push_one(&mut self, entry: u8) -> Result<Recruit, Entry> {
        self.deed = Deed::PushOne(entry);
        self.ready.push_one(Entry(entry))
    }

    /// `None`: the queue is closed.
    pub(super) fn push_jobs(&mut self, messages: &[u8]) -> Option<Recruit> {
        let mut jobs = [0; TURN];
        jobs[..messages.len()].copy_from_slice(messages);
        let count = messages.len() as u8;
        self.deed = Deed::PushJobs { jobs, count };
        let mut entries: Vec<_> = messages.iter().copied().map(Entry).collect();
        let (_, recruit) = self.ready.push(&mut entries);
        entries.is_empty().then_some(recruit)
    }

    pub(super) fn recruit(&mut self) -> Recruit {
        self.deed = Deed::Recruit;
        self.ready.recruit()
    }

    pub(super) fn take(&mut self, first: bool) -> Take<Entry> {
        self.deed = Deed::Take { first };
        self.ready.take(first)
    }

    pub(super) fn hold(&mut self) -> Recruit {
        self.deed = Deed::Hold;
        self.ready.hold()
    }

    pub(super) fn resume(&mut self) -> bool {
        self.deed = Deed::Resume;
        self.ready.resume()
    }

    pub(super) fn come_back(&mut self) -> (Take<Entry>, Recruit) {
        self.deed = Deed::ComeBack;
        self.ready.come_back()
    }

    /// `waits`: it has joined the idle ones.
    pub(super) fn poll_wake(&mut self, runner: u8, mut waits: bool) -> Poll<bool> {
        self.deed = Deed::PollWake { runner, waits };
        let mut cx = Context::from_waker(&self.wakers.wakers[usize::from(runner)]);
        self.ready.poll_wake(runner.into(), &mut waits, &mut cx)
    }

    pub(super) fn lost(&mut self, runner: u8) -> Recruit {
        self.deed = Deed::Lost(runner);
        self.ready.lost(Role::Gone, runner.into())
    }

    pub(super) fn close_ready(&mut self) -> VecDeque<Entry> {
        self.deed = Deed::CloseReady;
        self.ready.close()
    }

    pub(super) fn stripe(&self, at: usize) -> &Stripe<u8, Vec<u8>> {
        &self.stripes[at]
    }

    pub(super) fn ready(&self) -> &Ready<Entry> {
        &self.ready
    }
}
