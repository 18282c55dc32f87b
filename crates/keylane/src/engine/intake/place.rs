//! Places messages: each in its lane, or in the ready queue as the first job of a new lane.
//!
//! What a plain message never meets is in `detours.rs` and `by_plan.rs`.

use keylane_lanes::{Change, Offered, Stall};
use keylane_rt::Arc;
use keylane_rt::clock;

use super::super::message::{
    Accepted, Envelope, Job, JobEnvelope, Parked, Queued, Returning, Work,
};
use super::super::reshard::Resharding;
use super::super::room::Freed;
use super::super::settlement::{Outcome, Tally};
use super::super::{Engine, Lane};
use super::burst::Burst;
use super::detours::Detours;
use crate::observe::hot_keys::DepthFilter;
use crate::observe::message_line::Lost;
use crate::types::Spec;

/// Messages that have come and are not placed.
///
/// The key's own `Eq` or `Clone`, which run where a lane is looked for, may panic. The current
/// message is lost then, and its receipt says so. The others are handed back.
pub(super) struct Arrivals<'a, T: Spec> {
    pub(super) engine: &'a Arc<Engine<T>>,
    /// Messages that come back to be placed. They were accepted before the others.
    pub(super) returning: std::vec::Drain<'a, Returning<T>>,
    pub(super) burst: std::vec::Drain<'a, Accepted<T>>,
    /// The `accepted_at` of the last message.
    pub(super) last: &'a mut u64,
}

impl<'a, T: Spec> Arrivals<'a, T> {
    /// Places each message in the lane of its key. What starts goes into `jobs`.
    pub(super) fn place(
        mut self,
        resharding: Option<&'a mut Resharding<T>>,
        jobs: &'a mut Vec<Queued<T>>,
        grown: &'a mut DepthFilter,
    ) {
        let engine = self.engine;
        engine.probe.counters.accepted.add(self.burst.len() as u64);
        engine.probe.hot_keys.begin(grown, self.burst.len());
        let mut placer = Placer::new(engine, resharding, jobs, grown);
        let now = placer.stamp();
        for returning in self.returning.by_ref() {
            *self.last = now.max(*self.last + 1);
            let accepted_at = returning.accepted_at.unwrap_or(*self.last);
            placer.place(returning.accepted, accepted_at);
        }
        for accepted in self.burst.by_ref() {
            *self.last = now.max(*self.last + 1);
            placer.place(accepted, *self.last);
        }
        drop(self);
        placer.finish();
    }
}

impl<T: Spec> Drop for Arrivals<'_, T> {
    fn drop(&mut self) {
        if self.returning.len() + self.burst.len() == 0 {
            return;
        }
        let mut tally = Tally::default();
        let burst = self.burst.by_ref().map(Returning::new);
        for returning in self.returning.by_ref().chain(burst) {
            *self.last += 1;
            let accepted_at = returning.accepted_at.unwrap_or(*self.last);
            self.engine
                .settlement
                .hand_back_accepted(&mut tally, returning.accepted, accepted_at);
        }
        self.engine.settlement.flush(&mut tally);
    }
}

/// A burst on its way into the lanes.
struct Placer<'a, T: Spec> {
    burst: Burst<'a, T>,
    detours: Detours<'a, T>,
    freed: Freed,
}

/// What an existing lane did with a message.
struct Met<T: Spec> {
    offered: Offered<Parked<T>>,
    became_full: bool,
    depth: usize,
}

impl<'a, T: Spec> Placer<'a, T> {
    fn new(
        engine: &'a Arc<Engine<T>>,
        resharding: Option<&'a mut Resharding<T>>,
        jobs: &'a mut Vec<Queued<T>>,
        grown: &'a mut DepthFilter,
    ) -> Self {
        Self {
            burst: Burst {
                engine,
                now: clock::now(),
                jobs,
                grown,
                tally: Tally::default(),
            },
            detours: Detours::new(engine, resharding),
            freed: Freed::default(),
        }
    }

    /// The timestamp of this burst, as nanoseconds since the epoch.
    fn stamp(&self) -> u64 {
        self.burst.engine.clocks.stamp(self.burst.now)
    }

    /// Places a message. `accepted_at` is its place in the order of acceptance.
    #[inline]
    fn place(&mut self, mut accepted: Accepted<T>, accepted_at: u64) {
        let engine = self.burst.engine;
        if engine.shutdown.hands_back() {
            return engine.settlement.hand_back_accepted(
                &mut self.burst.tally,
                accepted,
                accepted_at,
            );
        }
        if self.detours.any {
            match self
                .detours
                .find_lane(&mut self.burst, accepted, accepted_at)
            {
                Some(found) => accepted = found,
                None => return,
            }
        }
        if engine.table.has_discipline && accepted.key.is_some() {
            self.burst.offer(accepted, accepted_at);
        } else {
            self.enter(accepted, accepted_at);
        }
    }

    /// Places a message in a plain lane. It becomes a job at once unless a lane exists, so that
    /// most messages are moved once.
    #[inline]
    fn enter(&mut self, accepted: Accepted<T>, accepted_at: u64) {
        let engine = self.burst.engine;
        let Accepted {
            key,
            hash,
            message,
            obligation,
        } = accepted;
        self.burst.jobs.push(Queued::Job(Job {
            key: None,
            hash,
            message,
            envelope: JobEnvelope::from(Envelope {
                obligation,
                accepted_at,
            }),
            work: Work::Attempt(1),
        }));
        let Some(key) = key else { return };
        let (jobs, freed) = (&mut *self.burst.jobs, &mut self.freed);
        let met = engine.table.lanes.enter(hash, &key, |lane| {
            let Some(Queued::Job(job)) = jobs.pop() else {
                unreachable!("it was pushed")
            };
            park(engine, lane, job.parked(), hash, freed)
        });
        match met {
            None => {
                if engine.settings.lane_capacity == 1 {
                    self.burst.fill_new_lane(hash, &key);
                }
                let lease = self.detours.lease(hash, &key);
                if let Some(Queued::Job(job)) = self.burst.jobs.last_mut() {
                    job.key = Some(key);
                    if let Some(lease) = lease {
                        job.work = Work::Leased(lease);
                    }
                }
            }
            Some(met) => {
                engine.table.note_depth(self.burst.grown, hash, met.depth);
                if let Offered::Parked = met.offered
                    && !met.became_full
                {
                    if std::mem::needs_drop::<T::Key>() {
                        engine.probe.drop_quietly(key);
                    }
                } else {
                    self.overflow(key, hash, met);
                }
            }
        }
    }

    /// Applies the policy of a lane that has reached its limit, and notifies the subscribers.
    #[cold]
    fn overflow(&mut self, key: T::Key, hash: u64, met: Met<T>) {
        let engine = self.burst.engine;
        engine.probe.notify_overflowed(&key);
        match met.offered {
            Offered::Parked => engine.probe.drop_quietly(key),
            Offered::Displaced(old) => {
                engine.probe.counters.overflowed.add(1);
                engine
                    .decisions
                    .log_lost(Some(&key), hash, &old.envelope, Lost::ToTheLimit);
                let outcome = Outcome::Displaced(old.message);
                engine
                    .settlement
                    .settle(&mut self.burst.tally, old.envelope, outcome);
            }
            Offered::Refused(new) => {
                engine.probe.counters.overflowed.add(1);
                let letter = engine
                    .decisions
                    .refuse(&mut self.burst.tally, key, hash, new);
                self.burst.jobs.extend(letter.map(Queued::Job));
            }
        }
    }

    /// Ends the burst: returns the freed room, and counts the settled messages.
    fn finish(mut self) {
        self.burst.engine.room.free(self.freed);
        self.burst.engine.settlement.flush(&mut self.burst.tally);
    }
}

/// Parks a message in a plain lane. Runs under the shard's lock.
#[inline]
fn park<T: Spec>(
    engine: &Engine<T>,
    lane: &mut Lane<T>,
    mut parked: Parked<T>,
    hash: u64,
    freed: &mut Freed,
) -> Met<T> {
    if lane.state().is_stalled() {
        engine
            .room
            .stall_obligation(&mut parked.envelope.obligation, freed);
    }
    let rules = &engine.table.rules;
    let offered = lane.park(
        parked,
        rules.capacity,
        rules.at_limit,
        engine.table.lanes.spares(),
    );
    let (mut became_full, depth) = (false, lane.len());
    if let Offered::Parked = offered {
        became_full = lane.count_arrival(depth, rules);
        if became_full {
            engine.room.count_full(hash, Change::Up);
        }
        if depth > rules.capacity {
            // Its sender could not see yet that the lane is full. If the message counted
            // against the capacity, one flooded key could take all the room from the others.
            engine.room.stall(lane, Stall::Lane, freed);
        }
    }
    Met {
        offered,
        became_full,
        depth,
    }
}
