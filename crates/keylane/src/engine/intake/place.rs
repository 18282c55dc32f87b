//! Places a message: in its lane, or in the ready queue as the first job of a new lane.

use keylane_lanes::{Change, Effects, Offered, Stall};
use keylane_rt::Arc;
use keylane_rt::clock::{self, Instant};

use super::super::leases::{HeldLease, LaneLeaseTable, Moment};
use super::super::message::{Accepted, Envelope, Job, JobEnvelope, Parked, Queued, Work};
use super::super::reshard::{Placed, Resharding};
use super::super::room::Freed;
use super::super::settlement::{Outcome, Tally};
use super::super::{Engine, Lane};
use crate::observe::hot_keys::DepthFilter;
use crate::types::Spec;

/// A burst from the channel on its way into the lanes.
pub(super) struct Placer<'a, T: Spec> {
    engine: &'a Arc<Engine<T>>,
    /// One timestamp for the burst: reading a clock costs more than visiting a lane.
    now: Instant,
    /// The leases, and the moment at which they are looked up, where lanes are leased.
    leases: Option<(&'a LaneLeaseTable<T::Key>, Moment)>,
    resharding: Option<&'a mut Resharding<T>>,
    /// The jobs that go into the ready queue.
    jobs: &'a mut Vec<Queued<T>>,
    grown: &'a mut DepthFilter,
    tally: Tally,
    freed: Freed,
    /// Whether a message may go elsewhere than into the lane of its key now.
    is_slow: bool,
}

/// What an existing lane did with a message.
struct Met<T: Spec> {
    offered: Offered<Parked<T>>,
    became_full: bool,
    depth: usize,
}

impl<'a, T: Spec> Placer<'a, T> {
    pub(super) fn new(
        engine: &'a Arc<Engine<T>>,
        resharding: Option<&'a mut Resharding<T>>,
        jobs: &'a mut Vec<Queued<T>>,
        grown: &'a mut DepthFilter,
    ) -> Self {
        let is_slow = resharding.is_some() || engine.slow_path.may_be_untimely();
        Self {
            engine,
            now: clock::now(),
            leases: engine
                .table
                .leases
                .as_deref()
                .map(|leases| (leases, leases.moment())),
            resharding,
            jobs,
            grown,
            tally: Tally::default(),
            freed: Freed::default(),
            is_slow,
        }
    }

    /// The timestamp of this burst, as nanoseconds since the epoch.
    pub(super) fn stamp(&self) -> u64 {
        self.engine.clocks.stamp(self.now)
    }

    /// Places a message. `accepted_at` is its place in the order of acceptance.
    #[inline]
    pub(super) fn place(&mut self, mut accepted: Accepted<T>, accepted_at: u64) {
        let engine = self.engine;
        if engine.shutdown.hands_back() {
            return engine
                .settlement
                .hand_back_accepted(&mut self.tally, accepted, accepted_at);
        }
        if self.is_slow {
            match self.find_lane(accepted, accepted_at) {
                Some(found) => accepted = found,
                None => return,
            }
        }
        if engine.table.has_discipline && accepted.key.is_some() {
            self.offer(accepted, accepted_at);
        } else {
            self.enter(accepted, accepted_at);
        }
    }

    /// Keeps a message that is delayed, or whose old lane has not drained. Returns all others, to
    /// be placed.
    #[cold]
    fn find_lane(&mut self, accepted: Accepted<T>, accepted_at: u64) -> Option<Accepted<T>> {
        let engine = self.engine;
        let accepted = engine
            .decisions
            .set_aside(accepted, accepted_at, self.now)?;
        let Some(resharding) = self.resharding.as_deref_mut() else {
            return Some(accepted);
        };
        let letter = match resharding.place(engine, accepted, accepted_at) {
            Placed::Lane(placed) => return Some(placed),
            Placed::Kept => None,
            Placed::Displaced(old) => engine.decisions.turn_away(&mut self.tally, old, true),
            Placed::Refused(new) => engine.decisions.turn_away(&mut self.tally, new, false),
        };
        self.jobs.extend(letter.map(Queued::Job));
        None
    }

    /// Offers a message to a lane with a discipline. If the key has no lane, the message may go
    /// into the ready queue at once: see [`Rules::enters`](keylane_lanes::Rules::enters).
    // Out of line, to keep the path of plain lanes short.
    #[inline(never)]
    fn offer(&mut self, accepted: Accepted<T>, accepted_at: u64) {
        let Accepted {
            key: Some(key),
            hash,
            message,
            obligation,
        } = accepted
        else {
            unreachable!("a message without a key has no lane")
        };
        let envelope = Envelope {
            obligation,
            accepted_at,
        };
        let engine = self.engine;
        if engine.table.enters && envelope.obligation.not_before(self.now).is_none() {
            let work = match engine.slow_path.rejoins {
                true => Work::Entered,
                false => Work::Attempt(1),
            };
            return self.enter_by_plan(
                key,
                Job {
                    key: None,
                    hash,
                    message,
                    envelope: envelope.into(),
                    work,
                },
            );
        }
        let parked = Parked { message, envelope };
        let tally = &mut self.tally;
        let depth = engine.offer(tally, key, hash, parked, self.now, self.jobs);
        engine.table.note_depth(self.grown, hash, depth);
    }

    /// Makes the lane of a message that is its first, or offers the message to the lane there is.
    fn enter_by_plan(&mut self, key: T::Key, job: Job<T>) {
        let (engine, hash, now) = (self.engine, job.hash, self.now);
        self.jobs.push(Queued::Job(job));
        let mut effects = Effects::new();
        let jobs = &mut *self.jobs;
        let make = || match engine.slow_path.rejoins {
            true => Lane::<T>::entered(),
            false => Lane::<T>::new(),
        };
        let met = engine.table.lanes.enter_or_make(hash, &key, make, |lane| {
            let Some(Queued::Job(job)) = jobs.pop() else {
                unreachable!("it was pushed")
            };
            let (parked, spares) = (job.parked(), engine.table.lanes.spares());
            lane.offer(
                parked,
                now,
                &engine.table.rules,
                spares,
                || None,
                &mut effects,
            );
            assert!(!effects.removes, "it has just got a message");
            engine
                .table
                .apply_locked(lane, &key, hash, now, &mut effects)
        });
        match met {
            None => {
                if engine.settings.lane_capacity == 1 {
                    self.fill_new_lane(hash, &key);
                }
                if let Some(Queued::Job(job)) = self.jobs.last_mut() {
                    job.key = Some(key);
                }
            }
            Some(after_unlock) => {
                if let Some(after_unlock) = after_unlock {
                    engine.table.apply_after_unlock(after_unlock);
                }
                engine.table.note_depth(self.grown, hash, effects.depth);
                let out =
                    engine
                        .decisions
                        .apply(&mut self.tally, key, hash, &mut effects, self.jobs);
                self.jobs.extend(out);
            }
        }
    }

    /// Places a message in a plain lane. It becomes a job at once unless a lane exists, so that
    /// most messages are moved once.
    #[inline]
    fn enter(&mut self, accepted: Accepted<T>, accepted_at: u64) {
        let engine = self.engine;
        let Accepted {
            key,
            hash,
            message,
            obligation,
        } = accepted;
        self.jobs.push(Queued::Job(Job {
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
        let (jobs, freed) = (&mut *self.jobs, &mut self.freed);
        let met = engine.table.lanes.enter(hash, &key, |lane| {
            let Some(Queued::Job(job)) = jobs.pop() else {
                unreachable!("it was pushed")
            };
            engine.park(lane, job.parked(), hash, freed)
        });
        match met {
            None => {
                if engine.settings.lane_capacity == 1 {
                    self.fill_new_lane(hash, &key);
                }
                let lease = self.lease(hash, &key);
                if let Some(Queued::Job(job)) = self.jobs.last_mut() {
                    job.key = Some(key);
                    if let Some(lease) = lease {
                        job.work = Work::Leased(lease);
                    }
                }
            }
            Some(met) => {
                engine.table.note_depth(self.grown, hash, met.depth);
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

    /// The lease of a key that has a lane from now on, if it is held.
    ///
    /// A runner would look it up otherwise, and a lock that one task alone takes costs less than
    /// one that wanders from processor to processor.
    #[inline]
    fn lease(&self, hash: u64, key: &T::Key) -> Option<HeldLease> {
        let (leases, moment) = self.leases?;
        leases.held(moment, hash, key)
    }

    /// A lane that is full with its first message.
    #[cold]
    fn fill_new_lane(&self, hash: u64, key: &T::Key) {
        let engine = self.engine;
        let full = engine.table.lanes.with(hash, key, |lane| {
            let full = lane.count_arrival(1, &engine.table.rules);
            if full {
                engine.room.count_full(hash, Change::Up);
            }
            full
        });
        if full == Some(true) {
            engine.probe.notify_overflowed(key);
        }
    }

    /// Applies the policy of a lane that has reached its limit, and notifies the subscribers.
    #[cold]
    fn overflow(&mut self, key: T::Key, hash: u64, met: Met<T>) {
        let engine = self.engine;
        engine.probe.notify_overflowed(&key);
        match met.offered {
            Offered::Parked => engine.probe.drop_quietly(key),
            Offered::Displaced(old) => {
                engine.probe.counters.overflowed.add(1);
                let outcome = Outcome::Displaced(old.message);
                engine
                    .settlement
                    .settle(&mut self.tally, old.envelope, outcome);
            }
            Offered::Refused(new) => {
                engine.probe.counters.overflowed.add(1);
                let letter = engine.decisions.refuse(&mut self.tally, key, hash, new);
                self.jobs.extend(letter.map(Queued::Job));
            }
        }
    }

    /// Ends the burst: returns the freed room, and counts the settled messages.
    pub(super) fn finish(mut self) {
        self.engine.room.free(self.freed);
        self.engine.settlement.flush(&mut self.tally);
    }
}

impl<T: Spec> Engine<T> {
    /// Offers a message to the lane of its key. Returns the depth of the lane.
    fn offer(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        parked: Parked<T>,
        now: Instant,
        jobs: &mut Vec<Queued<T>>,
    ) -> usize {
        let mut asked = None;
        let recall = || {
            let versions = self.settings.discipline.versions()?;
            let (last, key) = versions.last(&key, hash, now);
            // A key to drop after the lock is released.
            asked = Some(key);
            last
        };
        let mut effects = Effects::new();
        self.table
            .step_or_make(&key, hash, now, &mut effects, |lane, effects| {
                let spares = self.table.lanes.spares();
                lane.offer(parked, now, &self.table.rules, spares, recall, effects);
            });
        if asked.is_some() {
            self.probe.drop_quietly(asked);
        }
        let depth = effects.depth;
        let out = self.decisions.apply(tally, key, hash, &mut effects, jobs);
        jobs.extend(out);
        depth
    }

    /// Parks a message in a plain lane. Runs under the shard's lock.
    #[inline]
    fn park(
        &self,
        lane: &mut Lane<T>,
        mut parked: Parked<T>,
        hash: u64,
        freed: &mut Freed,
    ) -> Met<T> {
        if lane.state().is_stalled() {
            self.room
                .stall_obligation(&mut parked.envelope.obligation, freed);
        }
        let rules = &self.table.rules;
        let offered = lane.park(
            parked,
            rules.capacity,
            rules.at_limit,
            self.table.lanes.spares(),
        );
        let (mut became_full, depth) = (false, lane.len());
        if let Offered::Parked = offered {
            became_full = lane.count_arrival(depth, rules);
            if became_full {
                self.room.count_full(hash, Change::Up);
            }
            if depth > rules.capacity {
                // Its sender could not see yet that the lane is full. If the message counted
                // against the capacity, one flooded key could take all the room from the others.
                self.room.stall(lane, Stall::Lane, freed);
            }
        }
        Met {
            offered,
            became_full,
            depth,
        }
    }
}
