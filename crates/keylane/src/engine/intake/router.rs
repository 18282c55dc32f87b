//! The router: the dispatcher task. It alone reads the channel and the timers.
//!
//! # How it ends
//!
//! 1. The stage leaves `Open`: a shutdown was requested, or the last handle was dropped. Senders
//!    are refused, the channel is closed, and senders that wait at a gate are woken.
//! 2. The messages left in the channel are placed (drain) or handed back (close, abort).
//! 3. The channel is *empty*, and no delayed message is left. Halted lanes are handed back: no
//!    operator can decide about them any more, and no later message can start a new lane of a key
//!    whose failed job was handed back.
//! 4. Close and abort: the ready queue is closed; parked messages and waiting retries are handed
//!    back. Abort also drops every runner.
//! 5. Every accepted message has settled and no runner is active. The report is final.

use std::future::poll_fn;
use std::task::{Context, Poll};

use keylane_rt::clock::{self, Alarm};
use keylane_rt::{self as rt, Arc, mpsc};

use super::super::message::{Accepted, Queued, Returning, WakeUp};
use super::super::reshard::Resharding;
use super::super::settlement::Tally;
use super::super::{Engine, Stage};
use super::expire::ExpiryAlarm;
use super::place::Arrivals;
use super::release::Release;
use super::retries::DueRetries;
use crate::observe::hot_keys::DepthFilter;
use crate::types::Spec;

/// Most messages taken from the channel at once.
const BURST: usize = 256;

/// With this many jobs in the ready queue, the router yields to the runners first.
const BACKLOG: usize = 512;

/// After a burst of this size the router expects more messages at once.
const BUSY: usize = 32;

/// How often a busy router yields and looks again before it waits for a wake-up. A sender that
/// wakes it pays for the wake-up, and pulls the router to its own core, where the two then
/// alternate while another core sleeps.
const PATIENCE: u32 = 16;

pub(crate) struct Router<T: Spec> {
    engine: Arc<Engine<T>>,
    ingress: mpsc::UnboundedReceiver<Accepted<T>>,
    burst: Vec<Accepted<T>>,
    /// Messages that come back to be placed: they were delayed, or kept until their old lane had
    /// drained.
    returning: Vec<Returning<T>>,
    retries: DueRetries<T::Key>,
    /// Changes the number of lanes. `None`: each key has a lane of its own.
    resharding: Option<Resharding<T>>,
    /// The alarm for jobs that the rate holds back.
    release: Release,
    /// The alarm for messages that expire in the ready queue, and whether it has gone off.
    expiry: ExpiryAlarm,
    has_expired: bool,
    jobs: Vec<Queued<T>>,
    wake_ups: Vec<WakeUp<T::Key>>,
    /// The lanes that are known to be deep.
    grown: DepthFilter,
    /// The `accepted_at` of the last message. Each message has its own.
    last_accepted_at: u64,
    /// The stage that the router last acted on.
    seen: Stage,
    deadline: Option<Alarm>,
}

/// What the router has received.
enum Heard {
    /// Messages, timers, or both. May also be a wake-up alone.
    Work,
    /// The channel is closed and empty.
    End,
}

impl<T: Spec> Router<T> {
    pub(crate) fn new(
        engine: Arc<Engine<T>>,
        ingress: mpsc::UnboundedReceiver<Accepted<T>>,
        resharding: Option<Resharding<T>>,
    ) -> Self {
        let retries = DueRetries::new(engine.settings.retry_budget);
        Self {
            engine,
            ingress,
            burst: Vec::new(),
            returning: Vec::new(),
            retries,
            release: Release::default(),
            expiry: ExpiryAlarm::default(),
            has_expired: false,
            jobs: Vec::new(),
            wake_ups: Vec::new(),
            resharding,
            grown: DepthFilter::new(),
            last_accepted_at: 0,
            seen: Stage::Open,
            deadline: None,
        }
    }

    /// Runs until every accepted message has settled.
    pub(crate) async fn run(mut self) {
        let mut patience = 0;
        // Twice: an operator may have scheduled an empty lane in between.
        while !self.is_finished() || !self.close_ready() {
            if patience > 0 && self.is_quiet() {
                patience -= 1;
                rt::yield_now().await;
                continue;
            }
            if let Heard::End = poll_fn(|cx| self.listen(cx)).await {
                self.end_intake();
            }
            self.follow_stage();
            self.settle_expired();
            self.start_woken();
            self.engine.take_turns(&mut self.jobs);
            self.reshard();
            let routed = self.route();
            self.retries.start(&self.engine, &mut self.jobs);
            let waiting = self.hand_over();
            self.engine.wake_watchdog();
            if routed >= BUSY {
                patience = PATIENCE;
            }
            if routed == BURST {
                rt::step_aside().await;
            } else if routed >= BUSY || waiting >= BACKLOG || !self.returning.is_empty() {
                rt::yield_now().await;
            }
        }
        // Timers of jobs that runners handed back after the last sweep.
        self.forget_due();
        // Lanes that an operator has paused since the last sweep.
        self.engine.table.evict(false);
        self.engine.advance_to_end();
    }

    /// Closes the ready queue and hands back its jobs. False: the router is not finished after all.
    fn close_ready(&self) -> bool {
        for queued in self.engine.ready.close() {
            self.engine.table.hand_back_queued(queued);
        }
        self.is_finished()
    }

    /// Takes the due timers. True: there are some.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool {
        let retries = self.retries.poll(&self.engine, cx);
        let wake_ups = &self.engine.clocks.wake_ups;
        retries | wake_ups.poll_due(cx, &mut self.wake_ups).is_ready()
    }

    /// Whether there is nothing to do now.
    fn is_quiet(&self) -> bool {
        self.ingress.is_empty()
            && self.engine.shutdown.stage() == Stage::Open
            && self.engine.clocks.armed() == 0
            && self.retries.none_postponed()
    }

    /// Waits for messages, timers or a wake-up.
    fn listen(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        let shutdown = &self.engine.shutdown;
        // Registered before anything is checked, so that no wake-up is lost.
        shutdown.router().register(cx.waker());
        self.release.poll(&self.engine, cx);
        self.has_expired = self.expiry.poll(&self.engine, cx).is_ready();
        if !shutdown.has_intake_ended() {
            match rt::poll_recv_many(&mut self.ingress, cx, &mut self.burst, BURST) {
                // In this order: a turn may delay a message.
                Poll::Ready(0)
                    if self.returning.is_empty()
                        && self.engine.stripes.are_idle()
                        && self.engine.clocks.later.is_empty() =>
                {
                    return Poll::Ready(Heard::End);
                }
                Poll::Ready(0) => {
                    if shutdown.stage() == Stage::Open {
                        // The last handle is gone, and some accepted messages are still delayed,
                        // or not placed.
                        shutdown.enter(Stage::Draining);
                    }
                    self.engine.stripes.ask_router();
                }
                Poll::Ready(_) => {
                    // Timers are polled under any load.
                    let _ = self.poll_timers(cx);
                    return Poll::Ready(Heard::Work);
                }
                Poll::Pending => {}
            }
        }
        let due = self.poll_timers(cx);
        let refilled = self.retries.poll_refill(cx);
        let shutdown = &self.engine.shutdown;
        let stage = shutdown.stage();
        let reshards = self.resharding.as_ref().is_some_and(|resharding| {
            let lost = shutdown.has_intake_ended() && resharding.has_lost(&self.engine);
            lost || resharding.is_asked() || self.engine.table.has_drained()
        });
        let left_behind = stage >= Stage::Closing && self.engine.clocks.armed() > 0;
        let nudged = stage != self.seen || left_behind || reshards;
        if due
            || refilled
            || nudged
            || self.has_expired
            || self.engine.stripes.is_asked()
            || !self.returning.is_empty()
            || self.is_finished()
            || self.is_too_late(cx)
        {
            Poll::Ready(Heard::Work)
        } else {
            Poll::Pending
        }
    }

    /// Places each received message in the lane of its key. Returns how many there were.
    fn route(&mut self) -> usize {
        if self.engine.stripes.are_used() {
            self.engine
                .place_returning(&mut self.returning, &mut self.jobs);
            return 0;
        }
        let (came, returned) = (self.burst.len(), self.returning.len());
        if came + returned == 0 {
            return 0;
        }
        let arrivals = Arrivals {
            engine: &self.engine,
            returning: self.returning.drain(..),
            burst: self.burst.drain(..),
            last: &mut self.last_accepted_at,
        };
        arrivals.place(self.resharding.as_mut(), &mut self.jobs, &mut self.grown);
        came + returned
    }

    /// Clears the timers: all jobs that wait for them have been handed back.
    fn forget_due(&mut self) {
        self.retries.clear(&self.engine);
        self.engine.decisions.clear_clocks();
        self.wake_ups.clear();
        self.give_up_kept(true);
    }

    /// Continues a reshard.
    fn reshard(&mut self) {
        let Some(resharding) = &mut self.resharding else {
            return;
        };
        resharding.step(&self.engine, self.last_accepted_at, &mut self.returning);
        if self.engine.shutdown.has_intake_ended() {
            self.give_up_kept(false);
        }
    }

    /// Hands back the messages that are kept until their old lane drains: all of them, or only
    /// those whose old lane will never drain.
    fn give_up_kept(&mut self, all: bool) {
        let Some(resharding) = &mut self.resharding else {
            return;
        };
        let mut tally = Tally::default();
        for (accepted_at, accepted) in resharding.give_up(&self.engine, all) {
            self.engine
                .settlement
                .hand_back_accepted(&mut tally, accepted, accepted_at);
        }
        self.engine.settlement.flush(&mut tally);
    }

    /// Settles what has expired in the ready queue.
    fn settle_expired(&mut self) {
        if !std::mem::take(&mut self.has_expired) {
            return;
        }
        let mut tally = Tally::default();
        self.expiry.settle(&self.engine, &mut tally, &mut self.jobs);
        self.engine.settlement.flush(&mut tally);
    }

    /// Handles the due wake-ups: lanes that wait, delayed messages, rates to forget.
    fn start_woken(&mut self) {
        if self.wake_ups.is_empty() {
            return;
        }
        let now = clock::now();
        let mut tally = Tally::default();
        for wake_up in self.wake_ups.drain(..) {
            let (jobs, returning) = (&mut self.jobs, &mut self.returning);
            self.engine
                .decisions
                .wake_up(&mut tally, wake_up, now, jobs, returning);
        }
        self.engine.settlement.flush(&mut tally);
    }

    /// Pushes the jobs into the ready queue. Returns how many wait there.
    fn hand_over(&mut self) -> usize {
        if self.jobs.is_empty() {
            return 0;
        }
        let (waiting, recruit) = self.engine.ready.push(&mut self.jobs);
        self.engine.recruit(recruit);
        // The queue is closed: hand back the jobs that are left.
        for queued in self.jobs.drain(..) {
            self.engine.table.hand_back_queued(queued);
        }
        waiting
    }

    /// The channel is closed and empty.
    fn end_intake(&mut self) {
        let engine = &self.engine;
        if self.seen == Stage::Open {
            // The last handle is gone: drain what was accepted.
            engine.shutdown.enter(Stage::Draining);
        }
        engine.shutdown.end_intake();
        engine.table.evict(true);
    }

    /// Acts on a new stage.
    fn follow_stage(&mut self) {
        let engine = &self.engine;
        let stage = engine.shutdown.stage();
        if stage > Stage::Open && self.seen == Stage::Open {
            engine.stop_intake();
            self.ingress.close();
            engine.stripes.close();
            self.jobs.extend(engine.table.close_lanes());
        }
        if stage >= Stage::Closing {
            for queued in engine.ready.close() {
                engine.table.hand_back_queued(queued);
            }
            if self.seen < Stage::Closing {
                engine.table.evict(false);
            }
            self.forget_due();
        }
        if stage >= Stage::Aborting && self.seen < Stage::Aborting {
            self.engine.runners.abort_all();
        }
        self.seen = stage;
    }

    /// Whether every accepted message has settled and no handler runs.
    fn is_finished(&self) -> bool {
        let engine = &self.engine;
        engine.shutdown.has_intake_ended()
            && self.burst.is_empty()
            && self.returning.is_empty()
            && self.retries.none_due()
            && self.wake_ups.is_empty()
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

/// Cleans up however the task ends.
///
/// Normally everything has settled and there is nothing to do. If the runtime drops the task, or
/// the key's own `Eq` or `Clone`, or a subscriber of logs, panics in it, this is an abort: senders
/// are refused, and everything that is left is handed back.
impl<T: Spec> Drop for Router<T> {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.engine);
        if std::thread::panicking() {
            engine.settlement.count_lost_messages();
        }
        if engine.shutdown.stage() == Stage::Ended {
            engine.ready.close();
            return;
        }
        engine.shutdown.enter(Stage::Aborting);
        self.follow_stage();
        engine.shutdown.end_intake();
        for queued in std::mem::take(&mut self.jobs) {
            engine.table.hand_back_queued(queued);
        }
        self.forget_due();
        let mut tally = Tally::default();
        let mut left = std::mem::take(&mut self.burst);
        while let Ok(accepted) = self.ingress.try_recv() {
            left.push(accepted);
        }
        engine.probe.counters.accepted.add(left.len() as u64);
        engine.hand_back_stripes();
        let returning = std::mem::take(&mut self.returning);
        let left = left.into_iter().map(Returning::new);
        for returning in returning.into_iter().chain(left) {
            self.last_accepted_at += 1;
            let accepted_at = returning.accepted_at.unwrap_or(self.last_accepted_at);
            engine
                .settlement
                .hand_back_accepted(&mut tally, returning.accepted, accepted_at);
        }
        engine.table.evict(false);
        engine.settlement.flush(&mut tally);
        // Runners may still have jobs in flight: the runner that settles the last one ends the
        // dispatcher.
        engine.shutdown.orphan();
        engine.end_orphaned();
    }
}
