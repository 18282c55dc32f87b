//! The striped intake: senders put messages into the stripe of their key, and runners place them.
//!
//! A stripe with messages has an entry in the ready queue. The runner that takes it has the *turn*:
//! it places some messages, as the router does with those of the channel. If as many handlers are
//! in flight as may be, no runner comes, and the router takes the turns.

use keylane_lanes::Call;
use keylane_rt::Arc;
use keylane_rt::atomic::Ordering;

use super::super::Engine;
use super::super::end::Stage;
use super::super::message::{Accepted, Queued, Returning};
use super::place::Arrivals;
use super::stripes::Bench;
use crate::types::{Spec, Types};

/// Most messages placed in one turn.
const TURN: usize = if cfg!(keylane_shuttle) { 2 } else { 64 };

impl<T: Spec> Engine<T> {
    /// Puts a message into the stripe of its key, or gives it back once the intake is closed.
    #[inline]
    pub(crate) fn put_into_stripe(
        self: &Arc<Self>,
        accepted: Accepted<T>,
    ) -> Result<(), Accepted<T>> {
        let at = self.stripes.index_of(accepted.hash);
        let call = self.stripes.stripes[at].push(accepted)?;
        self.call(at, call);
        Ok(())
    }

    /// Has a runner, or the router, take the turn of a stripe. True: a runner was recruited.
    #[inline]
    fn call(self: &Arc<Self>, at: usize, call: Call) -> bool {
        call != Call::None && self.carry_out(at, call)
    }

    #[inline(never)]
    fn carry_out(self: &Arc<Self>, at: usize, call: Call) -> bool {
        let recruit = match call {
            // No runner comes any more. What waits is handed back, wherever this runs.
            _ if self.shutdown.hands_back() => None,
            Call::Enter => self.ready.push_one(Queued::Turn(at as u32)).ok(),
            Call::Recruit | Call::None => Some(self.ready.recruit()),
        };
        match recruit {
            Some(recruit) => self.recruit(recruit),
            None => {
                self.place_rest(at);
                false
            }
        }
    }

    /// A runner has taken the entry of a stripe out of the ready queue: places some of its
    /// messages.
    #[inline(never)]
    pub(in super::super) fn take_turn(self: &Arc<Self>, at: u32) -> Turned<T> {
        match self.turn(at as usize, true) {
            Some(turn) => turn.place(&mut Vec::new()),
            None => Turned::Placed { recruited: false },
        }
    }

    /// The router takes the turns that it was asked to take.
    pub(super) fn take_turns(self: &Arc<Self>, jobs: &mut Vec<Queued<T>>) {
        if !self.stripes.asked.swap(false, Ordering::SeqCst) {
            return;
        }
        for at in 0..self.stripes.stripes.len() {
            if let Some(turn) = self.turn(at, false)
                && let Turned::Starts(job) = turn.place(&mut Vec::new())
            {
                jobs.push(job);
            }
        }
    }

    /// The router places delayed messages whose time has come. Not beside a turn of their stripe,
    /// which may have a message of the same key in hand. What cannot be placed yet stays.
    pub(super) fn place_returning(
        self: &Arc<Self>,
        returning: &mut Vec<Returning<T>>,
        jobs: &mut Vec<Queued<T>>,
    ) {
        for (at, stripe) in self.stripes.stripes.iter().enumerate() {
            let is_here = |back: &mut Returning<T>| self.stripes.index_of(back.accepted.hash) == at;
            if !returning.iter_mut().any(&is_here) {
                continue;
            }
            let Some(bench) = stripe.take_empty_turn() else {
                continue;
            };
            let turn = Turn {
                engine: self,
                at,
                bench: Some(bench),
            };
            let mut here: Vec<_> = returning.extract_if(.., is_here).collect();
            if let Turned::Starts(job) = turn.place(&mut here) {
                jobs.push(job);
            }
        }
    }

    /// Hands back all messages that have not been placed.
    pub(super) fn hand_back_stripes(self: &Arc<Self>) {
        for at in 0..self.stripes.stripes.len() {
            self.place_rest(at);
        }
    }

    fn place_rest(self: &Arc<Self>, at: usize) {
        while let Some(turn) = self.turn(at, false) {
            let placed = turn.place_and_give_back(&mut Vec::new());
            if let Some(job) = placed.alone {
                self.enqueue(job);
            }
        }
        self.end_orphaned();
    }

    fn turn(self: &Arc<Self>, at: usize, by_entry: bool) -> Option<Turn<'_, T>> {
        let stripe = &self.stripes.stripes[at];
        let bench = stripe.take_turn(by_entry, TURN, |bench| &mut bench.batch)?;
        Some(Turn {
            engine: self,
            at,
            bench: Some(bench),
        })
    }
}

/// What a runner does after its turn.
pub(crate) enum Turned<T: Types> {
    /// It starts this, which is all that there was.
    Starts(Queued<T>),
    /// It asks for a job. If a runner was recruited, it steps aside first.
    Placed { recruited: bool },
}

/// The turn of a stripe. Given back however it ends.
struct Turn<'a, T: Spec> {
    engine: &'a Arc<Engine<T>>,
    at: usize,
    bench: Option<Box<Bench<T>>>,
}

/// The end of a turn.
struct Placed<T: Types> {
    /// The only job, if it is for this runner.
    alone: Option<Queued<T>>,
    recruited: bool,
    call: Call,
}

impl<T: Spec> Turn<'_, T> {
    fn place(self, returning: &mut Vec<Returning<T>>) -> Turned<T> {
        let (engine, at) = (self.engine, self.at);
        let Placed {
            alone,
            mut recruited,
            call,
        } = self.place_and_give_back(returning);
        match alone {
            Some(job) if call == Call::None => return Turned::Starts(job),
            // Another runner comes. Not with a job in hand, which may block the thread.
            Some(job) => recruited |= engine.enqueue(job),
            None => {}
        }
        recruited |= engine.call(at, call);
        Turned::Placed { recruited }
    }

    /// Places what has come back and then what was taken, and gives the turn back.
    fn place_and_give_back(mut self, returning: &mut Vec<Returning<T>>) -> Placed<T> {
        let engine = self.engine;
        let Some(bench) = &mut self.bench else {
            unreachable!("it is given back once")
        };
        let Bench {
            batch,
            jobs,
            grown,
            last_accepted_at,
        } = &mut **bench;
        Arrivals {
            engine,
            returning: returning.drain(..),
            burst: batch.drain(..),
            last: last_accepted_at,
        }
        .place(None, jobs, grown);
        let (mut alone, mut recruited) = (None, false);
        if jobs.len() == 1 && engine.stripes.starts_alone {
            alone = jobs.pop();
        } else if !jobs.is_empty() {
            let (_, recruit) = engine.ready.push(jobs);
            recruited = engine.recruit(recruit);
            if engine.table.rules.expires {
                // It has the alarm.
                engine.shutdown.wake_router();
            }
        }
        let call = self.give_back();
        Placed {
            alone,
            recruited,
            call,
        }
    }

    /// Hands back the jobs that are left, which a closed ready queue did not take, and gives the
    /// turn back.
    fn give_back(&mut self) -> Call {
        let Some(mut bench) = self.bench.take() else {
            return Call::None;
        };
        for queued in bench.jobs.drain(..) {
            self.engine.table.hand_back_queued(queued);
        }
        if self.engine.shutdown.hands_back() {
            // The router may have done this for the last time.
            self.engine.decisions.clear_clocks();
        }
        let call = self.engine.stripes.stripes[self.at].give_back(bench);
        if self.engine.shutdown.stage() > Stage::Open {
            self.engine.shutdown.wake_router();
        }
        call
    }
}

impl<T: Spec> Drop for Turn<'_, T> {
    /// The key's own `Eq` or `Clone` has panicked. The rest of the batch was handed back.
    fn drop(&mut self) {
        if self.bench.is_some() {
            let call = self.give_back();
            self.engine.call(self.at, call);
        }
    }
}
