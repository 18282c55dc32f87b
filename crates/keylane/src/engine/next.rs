//! What starts next in a lane.

use keylane_lanes::{Effects, Hold, Next};
use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::cloned;

use super::lane::{LaneEffects, open};
use super::message::{Job, Parked, Queued, Work};
use super::outcome::{Outcome, Tally};
use super::step::AfterUnlock;
use super::{Engine, Lane};
use crate::types::Spec;

/// What follows from a plain lane that took the slow path.
type Slow<T> = (LaneEffects<T>, Option<AfterUnlock<T>>);

impl<T: Spec> Engine<T> {
    /// Moves a lane on after its job has settled. Returns the next job, or the scheduled lane
    /// itself.
    #[inline]
    pub(super) fn advance(&self, key: Option<T::Key>, hash: u64) -> Option<Queued<T>> {
        let key = key?;
        if self.has_discipline {
            return self.advance_by_plan(key, hash);
        }
        let (mut job, mut slow) = (None, None);
        self.lanes.advance(hash, &key, |lane| {
            // Hardly any lane is full, paused or has a watermark; only those take the slow path.
            if !lane.is_bare() {
                return Some(((), self.advance_slowly(lane, &key, hash, &mut slow)));
            }
            let next = match lane.finish() {
                // Made here and handed past the map, so that the message is moved once.
                Next::Start(parked) => {
                    job = Some(Job::first(None, hash, parked));
                    Next::Stay
                }
                next => next,
            };
            Some(((), next))
        })?;
        if let Some(slow) = slow {
            let (mut effects, after_unlock) = slow;
            if let Some(after_unlock) = after_unlock {
                self.apply_after_unlock(after_unlock);
            }
            return self.follow(key, hash, &mut effects);
        }
        let mut job = job?;
        job.key = Some(key);
        Some(job.into())
    }

    /// Moves on a plain lane that is full, paused or has a watermark, or was. Under the shard's
    /// lock.
    #[cold]
    #[inline(never)]
    fn advance_slowly(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        slow: &mut Option<Slow<T>>,
    ) -> Next<Parked<T>> {
        let (now, mut effects) = (clock::now(), Effects::new());
        lane.advance(now, &self.rules, &mut effects);
        let after_unlock = self.apply_locked(lane, key, hash, now, &mut effects);
        let next = match effects.removes {
            true => Next::Remove,
            false => Next::Stay,
        };
        *slow = Some((effects, after_unlock));
        next
    }

    /// Moves on a lane with a discipline.
    // Out of line, to keep the path of plain lanes short.
    #[inline(never)]
    fn advance_by_plan(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let now = self.now_if(self.rules.advances_by_the_time());
        let mut effects = Effects::new();
        let found = self.step(&key, hash, now, &mut effects, |lane, effects| {
            lane.advance(now, &self.rules, effects);
        });
        if !found {
            return None;
        }
        self.follow(key, hash, &mut effects)
    }

    /// The time for a decision of a lane. Reading the clock costs as much as the decision, so lanes
    /// that do not look at the time get any.
    #[inline]
    fn now_if(&self, depends_on_it: bool) -> Instant {
        match depends_on_it || self.may_be_untimely() {
            true => clock::now(),
            false => self.clocks.epoch,
        }
    }

    /// Turns an entry of the ready queue into a job. A scheduled lane decides what starts.
    pub(super) fn choose(&self, mut queued: Queued<T>) -> Option<Job<T>> {
        loop {
            match queued {
                Queued::Job(job) => return Some(job),
                Queued::Lane { key, hash, .. } => {
                    let now = self.now_if(self.rules.asks_the_time());
                    let mut effects = Effects::new();
                    let found = self.step(&key, hash, now, &mut effects, |lane, effects| {
                        lane.next(now, &self.rules, effects);
                    });
                    if !found {
                        return None;
                    }
                    queued = self.follow(key, hash, &mut effects)?;
                }
            }
        }
    }

    /// A runner took a job out of the ready queue. Returns the job that starts, if any.
    pub(super) fn begin(&self, tally: &mut Tally, job: Job<T>) -> Option<Job<T>> {
        if job.envelope.obligation.may_be_untimely() || self.has_paused() {
            return self.reconsider(tally, job);
        }
        self.rejoin(tally, job)
    }

    /// If more messages have come since, the lane decides what starts.
    fn rejoin(&self, tally: &mut Tally, mut job: Job<T>) -> Option<Job<T>> {
        let Work::Entered = job.work else {
            return Some(job);
        };
        job.work = Work::Attempt(1);
        let Some(key) = job.key.take() else {
            return Some(job);
        };
        let hash = job.hash;
        let now = self.now_if(self.rules.asks_the_time());
        let (mut effects, mut waits) = (Effects::new(), Some(job));
        self.step(&key, hash, now, &mut effects, |lane, effects| {
            if !lane.begin()
                && let Some(job) = waits.take()
            {
                let spares = self.lanes.spares();
                lane.rejoin(job.parked(), now, &self.rules, spares, effects);
            }
        });
        if let Some(mut job) = waits {
            job.key = Some(key);
            return Some(job);
        }
        if let Some(waiting) = effects.take_merge() {
            // The room that they leave in the lane, before the user's function runs.
            open(effects.opening);
            let job = Job::first(Some(key), hash, self.merge(tally, waiting));
            // It may be delayed, as the newest of them was, and its key may be paused.
            return self.reconsider(tally, job);
        }
        self.choose(self.follow(key, hash, &mut effects)?)
    }

    /// Checks a job that may have to wait: its key is paused, or its time may not have come, or
    /// may have passed. Returns the job that starts instead, if any.
    pub(super) fn reconsider(&self, tally: &mut Tally, job: Job<T>) -> Option<Job<T>> {
        let now = clock::now();
        let job = match self.expire(tally, job, now)? {
            Queued::Job(job) => job,
            lane @ Queued::Lane { .. } => return self.choose(lane),
        };
        match job.work {
            Work::Letter(_) => Some(job),
            // Its lane knows whether it may start.
            Work::Entered => self.rejoin(tally, job),
            Work::Leased(_) => self.start_or_take_back(tally, job, 1, now),
            Work::Attempt(attempt) => self.start_or_take_back(tally, job, attempt, now),
        }
    }

    /// Settles a job that is too late, and each one behind it that is. Returns what is next.
    fn expire(&self, tally: &mut Tally, mut job: Job<T>, now: Instant) -> Option<Queued<T>> {
        let stamp = self.stamp(now);
        loop {
            let expires_at = job.envelope.obligation.expires_at();
            if !job.work.is_attempt() || expires_at.is_none_or(|at| at > stamp) {
                return Some(Queued::Job(job));
            }
            job = match self.settle_expired(tally, job)? {
                Queued::Job(next) => next,
                lane @ Queued::Lane { .. } => return Some(lane),
            };
        }
    }

    /// Settles a job that has expired, and moves its lane on. The others of its batch may have
    /// longer, and go back into the lane.
    pub(super) fn settle_expired(&self, tally: &mut Tally, job: Job<T>) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            ..
        } = job;
        let envelope = self.start_alone(tally, key.as_ref(), hash, envelope);
        self.settle(tally, envelope, Outcome::Expired(message));
        self.advance(key, hash)
    }

    /// Gives a job back to its lane if its time has not come, or its key is paused. Returns the job
    /// that starts, if any.
    fn start_or_take_back(
        &self,
        tally: &mut Tally,
        job: Job<T>,
        attempt: u32,
        now: Instant,
    ) -> Option<Job<T>> {
        let until = job.envelope.obligation.not_before(now);
        if until.is_none() && !self.has_paused() {
            return Some(job);
        }
        let Some(key) = job.key.as_ref().and_then(cloned) else {
            return Some(job);
        };
        self.flush(tally);
        let hash = job.hash;
        let mut job = Some(job);
        let mut effects = Effects::new();
        let found = self.step(&key, hash, now, &mut effects, |lane, effects| {
            let is_paused = lane.is_paused();
            let Some(job) = job.take_if(|_| is_paused || until.is_some()) else {
                return;
            };
            if attempt == 1 {
                let items = job.parked_apart();
                return lane.take_back(items, until, self.lanes.spares(), effects);
            }
            let head = job.held("paused".into());
            lane.hold(Box::new(head), Hold::Paused(now), effects);
        });
        if let Some(job) = job {
            return Some(job);
        }
        if !found {
            return None;
        }
        self.choose(self.follow(key, hash, &mut effects)?)
    }
}
