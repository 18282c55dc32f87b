//! The dispatcher task: the only one that reads the channel and the timers.
//!
//! # How it ends
//!
//! 1. The stage leaves `Open`, by a call or because the last handle is gone. Senders are refused,
//!    the channel is closed, senders that wait at a gate are let go.
//! 2. What is still in the channel is routed (draining) or handed back (closing, aborting).
//! 3. The channel is *exhausted*, and no delayed message is to come. Halted lanes are handed back: nobody will decide about them any
//!    more, and no message of their keys can arrive and start a lane that forgot the failed head.
//! 4. Closing and aborting: the ready queue is closed, parked messages and waiting retries are
//!    handed back. Aborting also drops every runner.
//! 5. Every accepted message has settled and no runner is active: the report stands.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use super::Engine;
use super::apart::Freed;
use super::message::{Accepted, Due, Parked, Queued, Rouse, Ticket, Turn, Work};
use super::relane::{Placed, Relaning};
use super::release::Release;
use super::settle::{Outcome, Tally};
use super::shutdown::{HandedBack, Stage};
use crate::clock::{self, Alarm};
use crate::error::Failure;
use crate::lanes::Offered;
use crate::observe::hot_keys::DepthFilter;
use crate::retry::Bucket;
use crate::rt::atomic::Ordering;
use crate::rt::{self, Arc, mpsc};
use crate::types::Spec;

/// Most messages taken from the channel at once.
const BATCH: usize = 256;

/// With this many turns waiting for runners, the router lets the runners go first.
const BACKLOG: usize = 512;

/// After a batch of this many there will be more in a moment.
const BUSY: usize = 32;

/// How often a router that was busy looks again, letting others run in between, before it asks to
/// be woken. A sender that wakes it pays for that, and pulls it over to its own core, where the two
/// then take turns while another core sleeps.
const PATIENCE: u32 = 16;

pub(crate) struct Router<T: Spec> {
    engine: Arc<Engine<T>>,
    ingress: mpsc::UnboundedReceiver<Accepted<T>>,
    batch: Vec<Accepted<T>>,
    due: Vec<Due<T::Key>>,
    /// Due retries that wait for the budget, in the order in which they came to it.
    postponed: VecDeque<Due<T::Key>>,
    /// Where the number of lanes may change.
    relaning: Option<Relaning<T>>,
    /// When the budget has grown enough for the first of them.
    refill: Option<Alarm>,
    /// Brings back what waits for the rate.
    release: Release,
    turns: Vec<Queued<T>>,
    roused: Vec<Rouse<T::Key>>,
    /// Messages in `batch` that were delayed, and were counted when they came.
    delayed: usize,
    budget: Option<Bucket>,
    /// Which lanes are known to be deep.
    grown: DepthFilter,
    /// The last message's `parked_at`: no two have the same.
    stamp: u64,
    /// The stage that was last acted on.
    seen: Stage,
    deadline: Option<Alarm>,
}

/// What the router heard.
enum Heard {
    /// Messages, timers, or both; perhaps nothing but a nudge.
    Work,
    /// The channel is closed and empty.
    Exhausted,
}

impl<T: Spec> Router<T> {
    pub(crate) fn new(
        engine: Arc<Engine<T>>,
        ingress: mpsc::UnboundedReceiver<Accepted<T>>,
        relaning: Option<Relaning<T>>,
    ) -> Self {
        let budget = engine
            .settings
            .retry_budget
            .map(|b| Bucket::new(b, clock::now()));
        Self {
            engine,
            ingress,
            batch: Vec::new(),
            due: Vec::new(),
            postponed: VecDeque::new(),
            refill: None,
            release: Release::default(),
            turns: Vec::new(),
            roused: Vec::new(),
            delayed: 0,
            relaning,
            budget,
            grown: DepthFilter::new(),
            stamp: 0,
            seen: Stage::Open,
            deadline: None,
        }
    }

    /// Runs until every accepted message has settled.
    pub(crate) async fn run(mut self) {
        let mut patience = 0;
        // Twice: an operator may have let the call of an empty lane out in between.
        while !self.is_finished() || !self.close_ready() {
            if patience > 0 && self.is_quiet() {
                patience -= 1;
                rt::yield_now().await;
                continue;
            }
            if let Heard::Exhausted = poll_fn(|cx| self.listen(cx)).await {
                self.exhaust();
            }
            self.follow_stage();
            self.start_roused();
            self.relane();
            let routed = self.route();
            self.start_due();
            let waiting = self.hand_over();
            self.engine.wake_watchdog();
            if routed >= BUSY {
                patience = PATIENCE;
            }
            if routed == BATCH {
                rt::step_aside().await;
            } else if routed >= BUSY || waiting >= BACKLOG {
                rt::yield_now().await;
            }
        }
        // Of heads that came to wait, and were handed back by their runners, after the last sweep.
        self.forget_due();
        // Lanes that hold nothing, and remember their rates.
        self.engine.sweep(false);
        self.engine.advance_to_end();
    }

    /// Lets nothing start any more. Whether it is the end still.
    fn close_ready(&self) -> bool {
        for queued in self.engine.ready.close() {
            self.engine.hand_back_queued(queued);
        }
        self.is_finished()
    }

    /// Whether there is nothing to do at this moment.
    fn is_quiet(&self) -> bool {
        self.ingress.is_empty()
            && self.engine.shutdown.stage() == Stage::Open
            && self.engine.timers.len() == 0
            && self.engine.rests.len() == 0
            && self.postponed.is_empty()
    }

    /// Waits for messages, timers or a nudge.
    fn listen(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        let shutdown = &self.engine.shutdown;
        // Registered before anything is looked at, so that no nudge falls between.
        #[cfg(not(keylane_mutant = "deaf-router"))]
        shutdown.router().register(cx.waker());
        self.release.poll(&self.engine, cx);
        if !shutdown.is_exhausted() {
            match rt::poll_recv_many(&mut self.ingress, cx, &mut self.batch, BATCH) {
                Poll::Ready(0) if self.engine.later.is_empty() => {
                    return Poll::Ready(Heard::Exhausted);
                }
                Poll::Ready(0) if shutdown.stage() == Stage::Open => {
                    // The last handle is gone, and some of what was accepted comes later.
                    shutdown.advance(Stage::Draining);
                }
                Poll::Ready(0) => {}
                Poll::Ready(_) => {
                    // Timers have their say under any load.
                    let _ = self.engine.timers.poll_due(cx, &mut self.due);
                    let _ = self.engine.rests.poll_due(cx, &mut self.roused);
                    return Poll::Ready(Heard::Work);
                }
                Poll::Pending => {}
            }
        }
        let due = self.engine.timers.poll_due(cx, &mut self.due).is_ready()
            | self.engine.rests.poll_due(cx, &mut self.roused).is_ready();
        let refilled = self
            .refill
            .as_mut()
            .is_some_and(|alarm| alarm.poll(cx).is_ready());
        if refilled {
            self.refill = None;
        }
        let stage = shutdown.stage();
        let timers = self.engine.timers.len() + self.engine.rests.len();
        let relanes = self.relaning.as_ref().is_some_and(|relaning| {
            let lost = shutdown.is_exhausted() && relaning.has_lost(&self.engine);
            lost || relaning.is_asked() || self.engine.has_drained()
        });
        let left_behind = stage >= Stage::Closing && timers > 0;
        let nudged = stage != self.seen || left_behind || relanes;
        if due || refilled || nudged || self.is_finished() || self.is_too_late(cx) {
            Poll::Ready(Heard::Work)
        } else {
            #[cfg(keylane_mutant = "deaf-router")]
            self.engine.shutdown.router().register(cx.waker());
            Poll::Pending
        }
    }

    /// Parks what came, each message in the lane of its key. Returns how many came.
    fn route(&mut self) -> usize {
        let routed = self.batch.len();
        if routed == 0 {
            return 0;
        }
        #[cfg(keylane_mutant = "overtake")]
        self.batch.reverse();
        let engine = &self.engine;
        let delayed = std::mem::take(&mut self.delayed);
        engine
            .probe
            .counters
            .accepted
            .add((routed - delayed) as u64);
        engine.probe.hot_keys.begin(&mut self.grown, routed);
        let mut tally = Tally::default();
        // One moment for the whole batch: a clock costs more than a lane.
        let moment = clock::now();
        let now = engine.stamp(moment);
        let mut freed = Freed::default();
        let mut arrivals = Arrivals {
            engine,
            rest: self.batch.drain(..),
            stamp: &mut self.stamp,
        };
        for mut accepted in arrivals.rest.by_ref() {
            if engine.has_terms() && !engine.shutdown.hands_back() {
                match engine.set_aside(accepted, moment) {
                    Some(back) => accepted = back,
                    None => continue,
                }
            }
            if let Some(relaning) = &mut self.relaning
                && !engine.shutdown.hands_back()
            {
                let (over, displaced) = match relaning.place(engine, accepted) {
                    Placed::Lane(placed) => (Ok(placed), false),
                    Placed::Kept => continue,
                    Placed::Displaced(old) => (Err(old), true),
                    Placed::Refused(new) => (Err(new), false),
                };
                match over {
                    Ok(placed) => accepted = placed,
                    Err(over) => {
                        *arrivals.stamp = now.max(*arrivals.stamp + 1);
                        let stamp = *arrivals.stamp;
                        let letter = engine.give_up_crowded(&mut tally, over, stamp, displaced);
                        self.turns.extend(letter.map(Queued::Turn));
                        continue;
                    }
                }
            }
            let Accepted {
                key,
                hash,
                message,
                debt,
            } = accepted;
            *arrivals.stamp = now.max(*arrivals.stamp + 1);
            let ticket = Ticket {
                debt,
                parked_at: *arrivals.stamp,
            };
            if engine.shutdown.hands_back() {
                let back = HandedBack::idle(key, message, 0);
                engine.hand_back(&mut tally, back, ticket);
                continue;
            }
            if engine.settings.thinks
                && let Some(key) = key
            {
                let parked = Parked { message, ticket };
                let turns = &mut self.turns;
                let depth = engine.arrive(&mut tally, key, hash, parked, moment, turns);
                engine.see_depth(&mut self.grown, hash, depth);
                continue;
            }
            // Its turn has come, unless its lane says otherwise: so most are moved once.
            self.turns.push(Queued::Turn(Turn {
                key: None,
                hash,
                message,
                ticket,
                work: Work::Attempt(1),
            }));
            let Some(key) = key else { continue };
            let turns = &mut self.turns;
            let present = engine.lanes.enter(hash, &key, |lane| {
                let Some(Queued::Turn(turn)) = turns.pop() else {
                    unreachable!("its turn was pushed")
                };
                let (mut parked, mut filled) = (turn.parked(), false);
                if lane.is_stalled() {
                    engine.set_apart(&mut parked.ticket, &mut freed);
                }
                let calls = lane.is_idle();
                let limit = engine.settings.lane_capacity;
                let offered = lane.offer(parked, limit, engine.at_limit(), engine.lanes.spares());
                let depth = lane.depth();
                if let Offered::Parked = offered {
                    filled = engine.see_arrival(lane, depth, hash);
                    if depth > limit {
                        // It came in before its sender could see the lane full. If that were load,
                        // one flooded key could take all the room from the others.
                        engine.set_lane_apart(lane, &mut freed);
                    }
                }
                if calls {
                    lane.call();
                }
                (offered, calls, filled, depth)
            });
            match present {
                None => {
                    if engine.settings.lane_capacity == 1 {
                        // Full with its first message.
                        let filled = engine
                            .lanes
                            .with(hash, &key, |lane| engine.see_arrival(lane, 1, hash));
                        if filled == Some(true) {
                            engine.notify_overflowed(&key);
                        }
                    }
                    if let Some(Queued::Turn(turn)) = self.turns.last_mut() {
                        turn.key = Some(key);
                    }
                }
                Some((offered, calls, filled, depth)) => {
                    if calls {
                        let key = key.clone();
                        self.turns.push(engine.called(key, hash));
                    }
                    engine.see_depth(&mut self.grown, hash, depth);
                    if filled || !matches!(offered, Offered::Parked) {
                        engine.notify_overflowed(&key);
                    }
                    match offered {
                        Offered::Parked if std::mem::needs_drop::<T::Key>() => {
                            engine.drop_quietly(key)
                        }
                        Offered::Parked => {}
                        Offered::Displaced(old) => {
                            engine.probe.counters.overflowed.add(1);
                            let outcome = Outcome::Displaced(old.message);
                            engine.settle(&mut tally, old.ticket, outcome);
                        }
                        Offered::Refused(new) => {
                            engine.probe.counters.overflowed.add(1);
                            let refused = engine.refuse(&mut tally, key, hash, new);
                            self.turns.extend(refused.map(Queued::Turn));
                        }
                    }
                }
            }
        }
        engine.free(&freed);
        engine.flush(&mut tally);
        routed
    }

    /// Lets out the heads whose wait is over.
    fn start_due(&mut self) {
        if self.due.is_empty() && self.postponed.is_empty() {
            return;
        }
        let engine = &self.engine;
        let now = clock::now();
        let before = self.postponed.len();
        for due in self.due.drain(..) {
            if !engine.is_retry(&due) {
                self.turns.extend(engine.due(due, now).map(Queued::Turn));
            } else if self.budget.is_some() {
                self.postponed.push_back(due);
            } else {
                engine.probe.counters.retries.add(1);
                self.turns.extend(engine.due(due, now).map(Queued::Turn));
            }
        }
        if let Some(budget) = &mut self.budget
            && !self.postponed.is_empty()
        {
            let arrived = self.postponed.len() - before;
            while let Some(due) = self.postponed.front() {
                if engine.is_retry(due) {
                    if let Err(wait) = budget.withdraw(now, engine.probe.counters.settled()) {
                        self.refill = now.checked_add(wait).map(Alarm::new);
                        break;
                    }
                    engine.probe.counters.retries.add(1);
                }
                let due = self.postponed.pop_front();
                let turn = due.and_then(|due| engine.due(due, now));
                self.turns.extend(turn.map(Queued::Turn));
            }
            let waiting = self.postponed.len();
            engine
                .probe
                .counters
                .postponed
                .add(arrived.min(waiting) as u64);
            engine.postponed.store(waiting, Ordering::Relaxed);
        }
    }

    /// Forgets the timers: whatever waited for them has been handed back.
    fn forget_due(&mut self) {
        self.due.clear();
        self.postponed.clear();
        self.refill = None;
        self.engine.postponed.store(0, Ordering::Relaxed);
        self.engine.clear_timers();
        self.roused.clear();
        let mut tally = Tally::default();
        self.engine.clear_rests(&mut tally, &mut self.stamp);
        self.engine.flush(&mut tally);
        self.give_up_kept(true);
    }

    /// Goes on with a change of the number of lanes.
    fn relane(&mut self) {
        let Some(relaning) = &mut self.relaning else {
            return;
        };
        // Counted as accepted when they came.
        self.delayed += relaning.step(&self.engine, self.stamp, &mut self.batch);
        if self.engine.shutdown.is_exhausted() {
            self.give_up_kept(false);
        }
    }

    /// Hands back what was kept for lanes that have not drained: for all of them, or for those that
    /// never will.
    fn give_up_kept(&mut self, all: bool) {
        let Some(relaning) = &mut self.relaning else {
            return;
        };
        let mut tally = Tally::default();
        for accepted in relaning.give_up(&self.engine, all) {
            self.stamp += 1;
            self.engine
                .hand_back_accepted(&mut tally, accepted, self.stamp);
        }
        self.engine.flush(&mut tally);
    }

    /// Lets out what has rested, or was delayed, until now.
    fn start_roused(&mut self) {
        if self.roused.is_empty() {
            return;
        }
        let now = clock::now();
        let mut tally = Tally::default();
        for rouse in self.roused.drain(..) {
            let delayed = self.engine.rouse(&mut tally, rouse, now, &mut self.turns);
            self.delayed += delayed.len();
            self.batch.extend(delayed);
        }
        self.engine.flush(&mut tally);
    }

    /// Gives the turns to the runners. Returns how many wait.
    fn hand_over(&mut self) -> usize {
        if self.turns.is_empty() {
            return 0;
        }
        let (waiting, recruit) = self.engine.ready.push(&mut self.turns);
        self.engine.recruit(recruit);
        // Whatever is left met a closed queue.
        for queued in self.turns.drain(..) {
            self.engine.hand_back_queued(queued);
        }
        waiting
    }

    /// Nothing will come through the channel any more.
    fn exhaust(&mut self) {
        let engine = &self.engine;
        if self.seen == Stage::Open {
            // The last handle is gone: what was accepted is still handled.
            engine.shutdown.advance(Stage::Draining);
        }
        engine.shutdown.exhaust();
        engine.sweep(true);
    }

    /// Carries out what the stage asks for.
    fn follow_stage(&mut self) {
        let engine = &self.engine;
        let stage = engine.shutdown.stage();
        if stage > Stage::Open && self.seen == Stage::Open {
            engine.stop_intake();
            self.ingress.close();
            self.turns.extend(engine.open_gates());
        }
        if stage >= Stage::Closing {
            for queued in engine.ready.close() {
                engine.hand_back_queued(queued);
            }
            if self.seen < Stage::Closing {
                engine.sweep(false);
            }
            self.forget_due();
        }
        if stage >= Stage::Aborting && self.seen < Stage::Aborting {
            self.engine.runners.abort_all();
        }
        self.seen = stage;
    }

    /// Whether every accepted message has settled and nothing runs.
    fn is_finished(&self) -> bool {
        let engine = &self.engine;
        engine.shutdown.is_exhausted()
            && self.batch.is_empty()
            && self.due.is_empty()
            && self.roused.is_empty()
            && engine.is_settled()
    }

    /// Whether the deadline of the shutdown has passed.
    fn is_too_late(&mut self, cx: &mut Context<'_>) -> bool {
        let shutdown = &self.engine.shutdown;
        let Some(at) = shutdown.deadline() else {
            return false;
        };
        if shutdown.stage() >= Stage::Aborting {
            return false;
        }
        let alarm = self.deadline.get_or_insert_with(|| Alarm::new(at));
        alarm.reset(at);
        if alarm.poll(cx).is_pending() {
            return false;
        }
        shutdown.reach_deadline();
        true
    }
}

/// A batch on its way into the lanes, which are found by the key's own `Eq` and `Clone`.
///
/// If those panic, the message in hand is lost, and its receipt says so; the rest of the batch is
/// handed back.
struct Arrivals<'a, T: Spec> {
    engine: &'a Engine<T>,
    rest: std::vec::Drain<'a, Accepted<T>>,
    /// The last message's place in the order of acceptance.
    stamp: &'a mut u64,
}

impl<T: Spec> Drop for Arrivals<'_, T> {
    fn drop(&mut self) {
        let mut tally = Tally::default();
        for accepted in &mut self.rest {
            *self.stamp += 1;
            self.engine
                .hand_back_accepted(&mut tally, accepted, *self.stamp);
        }
        self.engine.flush(&mut tally);
    }
}

/// However the task ends, nothing waits for it afterwards.
///
/// In the good case everything has settled and this finds nothing. If the runtime drops the task,
/// or the user's `Hash` or `Eq` panics in it, it is an abort: senders are refused, and what is
/// still here goes back.
impl<T: Spec> Drop for Router<T> {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.engine);
        if std::thread::panicking() {
            engine.count_lost();
        }
        if engine.shutdown.stage() == Stage::Ended {
            engine.ready.close();
            return;
        }
        engine.shutdown.advance(Stage::Aborting);
        self.follow_stage();
        engine.shutdown.exhaust();
        for queued in std::mem::take(&mut self.turns) {
            engine.hand_back_queued(queued);
        }
        self.forget_due();
        let mut tally = Tally::default();
        let mut left = std::mem::take(&mut self.batch);
        while let Ok(accepted) = self.ingress.try_recv() {
            left.push(accepted);
        }
        let new = left.len() - std::mem::take(&mut self.delayed).min(left.len());
        engine.probe.counters.accepted.add(new as u64);
        for accepted in left {
            self.stamp += 1;
            engine.hand_back_accepted(&mut tally, accepted, self.stamp);
        }
        engine.sweep(false);
        engine.flush(&mut tally);
        // Runners may still have messages in hand: whoever settles the last one ends it.
        engine.shutdown.orphan();
        engine.end_orphaned();
    }
}

impl<T: Spec> Engine<T> {
    /// Hands back a message that did not come into any lane.
    pub(super) fn hand_back_accepted(
        &self,
        tally: &mut Tally,
        accepted: Accepted<T>,
        parked_at: u64,
    ) {
        let Accepted {
            key, message, debt, ..
        } = accepted;
        let ticket = Ticket { debt, parked_at };
        self.hand_back(tally, HandedBack::idle(key, message, 0), ticket);
    }

    /// A message met a full lane that takes no more. Returns the turn that brings it to the sink;
    /// it runs without order, as the lane goes on beside it.
    pub(super) fn refuse(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        refused: Parked<T>,
    ) -> Option<Turn<T>> {
        let Parked { message, ticket } = refused;
        if self.settings.overflow != super::Overflow::DeadLetter {
            self.settle(tally, ticket, Outcome::Displaced(message));
            return None;
        }
        let work = Work::letter(0, Failure::LaneFull, Some(key));
        Some(Turn {
            key: None,
            hash,
            message,
            ticket,
            work,
        })
    }
}
