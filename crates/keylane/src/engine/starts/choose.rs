//! What starts next in a lane.

use keylane_lanes::{Effects, Hold};
use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::cloned;

use super::Starts;
use crate::engine::lane::open;
use crate::engine::message::{Job, Queued, Work};
use crate::engine::settlement::Tally;
use crate::types::{Spec, Types};

/// What became of a job that was to start.
enum Considered<T: Types> {
    Starts(Job<T>),
    /// Its lane has it back, or has settled it, and lets this out instead.
    Instead(Option<Queued<T>>),
    /// It is another message now, which may have to wait.
    Merged(Job<T>),
}

impl<T: Spec> Starts<T> {
    /// Returns the job that starts of an entry of the ready queue: this one, or another one of its
    /// lane.
    pub(crate) fn choose(&self, tally: &mut Tally, mut queued: Queued<T>) -> Option<Job<T>> {
        // What a lane has just let out is not considered again.
        let mut is_decided = false;
        loop {
            let considered = match queued {
                Queued::Lane { key, hash, .. } => Considered::Instead(self.ask_lane(key, hash)),
                Queued::Job(job) if is_decided => return Some(job),
                Queued::Job(job) => self.consider(tally, job),
                Queued::Turn(_) => unreachable!("a runner takes it, and no lane lets it out"),
            };
            queued = match considered {
                Considered::Instead(next) => next?,
                Considered::Starts(job) | Considered::Merged(job) => return Some(job),
            };
            is_decided = true;
        }
    }

    /// A scheduled lane decides what starts.
    fn ask_lane(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let now = self.table.now_if(self.table.rules.asks_the_time());
        let mut effects = Effects::new();
        let found = self
            .table
            .step(&key, hash, now, &mut effects, |lane, effects| {
                lane.next(now, &self.table.rules, effects);
            });
        found
            .then(|| self.decisions.follow(key, hash, &mut effects))
            .flatten()
    }

    /// Considers a job that may have to wait: more messages may have come, its key may be paused,
    /// its time may not have come, or may have passed.
    fn consider(&self, tally: &mut Tally, job: Job<T>) -> Considered<T> {
        let is_timely = !job.envelope.obligation.may_be_untimely();
        let considered = match is_timely && !self.slow_path.has_paused() {
            true => self.rejoin(tally, job),
            false => self.consider_time(tally, job),
        };
        match considered {
            // It may be delayed, as the newest of them was, and its key may be paused.
            Considered::Merged(merged) => self.consider_time(tally, merged),
            considered => considered,
        }
    }

    fn consider_time(&self, tally: &mut Tally, job: Job<T>) -> Considered<T> {
        let now = clock::now();
        let job = match self.expire(tally, job, now) {
            Some(Queued::Job(job)) => job,
            instead => return Considered::Instead(instead),
        };
        match job.work {
            Work::Letter(_) => Considered::Starts(job),
            // Its lane knows whether it may start.
            Work::Entered => self.rejoin(tally, job),
            Work::Leased(_) => self.take_back(tally, job, 1, now),
            Work::Attempt(attempt) => self.take_back(tally, job, attempt, now),
        }
    }

    /// If more messages have come since, the lane decides what starts.
    fn rejoin(&self, tally: &mut Tally, mut job: Job<T>) -> Considered<T> {
        let Work::Entered = job.work else {
            return Considered::Starts(job);
        };
        job.work = Work::Attempt(1);
        let Some(key) = job.key.take() else {
            return Considered::Starts(job);
        };
        let hash = job.hash;
        let now = self.table.now_if(self.table.rules.asks_the_time());
        let (mut effects, mut waits) = (Effects::new(), Some(job));
        self.table
            .step(&key, hash, now, &mut effects, |lane, effects| {
                if !lane.begin()
                    && let Some(job) = waits.take()
                {
                    let spares = self.table.lanes.spares();
                    lane.rejoin(job.parked(), now, &self.table.rules, spares, effects);
                }
            });
        if let Some(mut job) = waits {
            job.key = Some(key);
            return Considered::Starts(job);
        }
        if let Some(waiting) = effects.take_merge() {
            // The room that they leave in the lane, before the user's function runs.
            open(effects.opening);
            let merged = self.decisions.merge(tally, waiting);
            return Considered::Merged(Job::first(Some(key), hash, merged));
        }
        Considered::Instead(self.decisions.follow(key, hash, &mut effects))
    }

    /// Settles a job that is too late, and each one behind it that is. Returns what is next.
    fn expire(&self, tally: &mut Tally, mut job: Job<T>, now: Instant) -> Option<Queued<T>> {
        let stamp = self.table.clocks.stamp(now);
        loop {
            let expires_at = job.envelope.obligation.expires_at();
            if !job.work.is_attempt() || expires_at.is_none_or(|at| at > stamp) {
                return Some(Queued::Job(job));
            }
            job = match self.decisions.settle_expired(tally, job)? {
                Queued::Job(next) => next,
                other => return Some(other),
            };
        }
    }

    /// Gives a job back to its lane if its time has not come, or its key is paused.
    fn take_back(
        &self,
        tally: &mut Tally,
        job: Job<T>,
        attempt: u32,
        now: Instant,
    ) -> Considered<T> {
        let until = job.envelope.obligation.not_before(now);
        if until.is_none() && !self.slow_path.has_paused() {
            return Considered::Starts(job);
        }
        let Some(key) = job.key.as_ref().and_then(cloned) else {
            return Considered::Starts(job);
        };
        self.decisions.settlement.flush(tally);
        let hash = job.hash;
        let mut job = Some(job);
        let mut effects = Effects::new();
        let found = self
            .table
            .step(&key, hash, now, &mut effects, |lane, effects| {
                let is_paused = lane.is_paused();
                let Some(job) = job.take_if(|_| is_paused || until.is_some()) else {
                    return;
                };
                if attempt == 1 {
                    let items = job.parked_apart();
                    return lane.take_back(items, until, self.table.lanes.spares(), effects);
                }
                let head = job.held("paused".into());
                lane.hold(Box::new(head), Hold::Paused(now), effects);
            });
        if let Some(job) = job {
            return Considered::Starts(job);
        }
        let next = found.then(|| self.decisions.follow(key, hash, &mut effects));
        Considered::Instead(next.flatten())
    }
}
