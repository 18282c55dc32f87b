//! Explores all orders of the steps of a program.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::programs::Program;
use super::real::{Deed, Real, Wakers};
use super::steps::Step;
use super::world::{CLOSER, FIRST, Op, ROUTER, Role, State, THREADS, Thread};

/// A fast hash for many small values.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    fn add(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(padded));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut mix = Mix::default();
    value.hash(&mut mix);
    mix.finish()
}

/// States that differ in the numbers of their runners alone have the same one.
fn fingerprint(state: &State) -> u64 {
    let rank = |runner: &Thread| {
        let behind = 0;
        hash_of(&Thread { behind, ..*runner })
    };
    hash_of(&state.sorted(rank))
}

/// How a state was reached.
struct Node {
    parent: u32,
    thread: u8,
    deed: Deed,
}

/// The states of a program that have been reached.
struct Explored<'a> {
    program: &'a Program,
    wakers: Wakers,
    nodes: Vec<Node>,
    seen: HashSet<u64, BuildHasherDefault<Mix>>,
}

/// Takes the steps of a program in all orders, the shortest sequences first. Returns the number of
/// states.
pub(super) fn explore(program: &Program) -> usize {
    let mut explored = Explored {
        program,
        wakers: Wakers::new(),
        nodes: Vec::new(),
        seen: HashSet::default(),
    };
    explored.run();
    explored.nodes.len()
}

impl Explored<'_> {
    fn run(&mut self) {
        let mut state = State::new(self.program);
        let mut real = Real::new(self.program, &self.wakers);
        step(self.program, &mut state, &mut real, 0).begin();
        self.nodes.push(Node {
            parent: 0,
            thread: 0,
            deed: Deed::Nothing,
        });
        let mut frontier = vec![(0, state)];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for (node, state) in frontier {
                self.expand(node, &state, &mut next);
            }
            frontier = next;
        }
    }

    fn expand(&mut self, node: u32, state: &State, next: &mut Vec<(u32, State)>) {
        let deeds = self.deeds(node);
        let (mut is_end, mut rests) = (true, true);
        for thread in 0..THREADS {
            if !state.can_step(self.program, thread) {
                continue;
            }
            is_end = false;
            rests &= state.threads[thread].role == Role::Holder
                && matches!(state.threads[thread].plan.next(), Some(Op::EndHandler(_)));
            let (state, deed) = self.follow(node, state, thread, &deeds);
            if self.seen.insert(fingerprint(&state)) {
                let child = self.nodes.len() as u32;
                self.nodes.push(Node {
                    parent: node,
                    thread: thread as u8,
                    deed,
                });
                next.push((child, state));
            }
        }
        if rests && let Err(why) = caught(|| state.check_rest(self.program)) {
            self.fail(node, None, &why);
        }
        if is_end && let Err(why) = caught(|| state.check_end(self.program)) {
            self.fail(node, None, &why);
        }
    }

    /// One thread takes a step.
    fn follow(&self, node: u32, state: &State, thread: usize, deeds: &[Deed]) -> (State, Deed) {
        let mut state = *state;
        let followed = caught(|| {
            let mut real = Real::new(self.program, &self.wakers);
            deeds.iter().for_each(|deed| real.redo(*deed));
            while self.wakers.next_woken().is_some() {}
            real.deed = Deed::Nothing;
            step(self.program, &mut state, &mut real, thread).take();
            state.check(self.program, &real);
            real.deed
        });
        match followed {
            Ok(deed) => (state, deed),
            Err(why) => self.fail(node, Some(thread), &why),
        }
    }

    /// What was done to the objects on the way to a node.
    fn deeds(&self, node: u32) -> Vec<Deed> {
        let mut deeds: Vec<_> = self.way_to(node).map(|node| node.deed).collect();
        deeds.reverse();
        deeds
    }

    fn way_to(&self, node: u32) -> impl Iterator<Item = &Node> {
        let step = |at: &u32| (*at > 0).then(|| self.nodes[*at as usize].parent);
        let way = std::iter::successors(Some(node), step).filter(|at| *at > 0);
        way.map(|at| &self.nodes[at as usize])
    }

    /// Fails with the steps that led to this node, and the last one.
    fn fail(&self, node: u32, thread: Option<usize>, why: &str) -> ! {
        let mut threads: Vec<_> = self.way_to(node).map(|node| node.thread.into()).collect();
        threads.reverse();
        threads.extend(thread);
        let mut story = format!("{why}\n\n{:#?}\n\n", self.program);
        let mut state = State::new(self.program);
        let mut real = Real::new(self.program, &self.wakers);
        step(self.program, &mut state, &mut real, 0).begin();
        for thread in threads {
            let op = state.threads[thread].plan.next();
            let _ = writeln!(story, "{:10} {op:?}", name(thread));
            let _ = caught(|| {
                step(self.program, &mut state, &mut real, thread).take();
            });
        }
        let _ = writeln!(story, "\nThen, of those that have not ended:");
        for (thread, left) in state.threads.iter().enumerate() {
            if let Some(op) = left.plan.next() {
                let _ = writeln!(story, "{:10} {:?}, {op:?} is next", name(thread), left.role);
            }
        }
        panic!(
            "{story}{:?}, in the ready queue {:?}",
            state.messages,
            state.queue.all()
        );
    }
}

fn name(thread: usize) -> String {
    match thread {
        CLOSER => "closer".to_owned(),
        ROUTER => "router".to_owned(),
        thread if thread < CLOSER => format!("sender {thread}"),
        thread => format!("runner {}", thread - FIRST),
    }
}

fn step<'a, 'r>(
    program: &'a Program,
    state: &'a mut State,
    real: &'a mut Real<'r>,
    thread: usize,
) -> Step<'a, 'r> {
    Step {
        program,
        state,
        real,
        thread,
    }
}

/// What it returns, or what its panic says.
fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .copied()
            .unwrap_or_default()
            .to_owned(),
    })
}
