//! Places messages in lanes with a discipline.

use keylane_lanes::Effects;

use super::super::Lane;
use super::super::message::{Accepted, Envelope, Job, Parked, Queued, Work};
use super::super::table::Wait;
use super::burst::Burst;
use crate::types::Spec;

impl<T: Spec> Burst<'_, T> {
    /// Offers a message to a lane with a discipline. If the key has no lane, the message may go
    /// into the ready queue at once: see [`Rules::enters`](keylane_lanes::Rules::enters).
    // Out of line, to keep the path of plain lanes short.
    #[inline(never)]
    pub(super) fn offer(&mut self, accepted: Accepted<T>, accepted_at: u64) {
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
        let depth = self.offer_to_lane(key, hash, parked);
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
            let before = Wait::of(lane);
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
                .apply_locked(lane, &key, hash, now, before, &mut effects)
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

    /// Offers a message to the lane of its key. Returns the depth of the lane.
    fn offer_to_lane(&mut self, key: T::Key, hash: u64, parked: Parked<T>) -> usize {
        let (engine, now) = (self.engine, self.now);
        let mut asked = None;
        let recall = || {
            let versions = engine.settings.discipline.versions()?;
            let (last, key) = versions.last(&key, hash, now);
            // A key to drop after the lock is released.
            asked = Some(key);
            last
        };
        let mut effects = Effects::new();
        engine
            .table
            .step_or_make(&key, hash, now, &mut effects, |lane, effects| {
                let spares = engine.table.lanes.spares();
                lane.offer(parked, now, &engine.table.rules, spares, recall, effects);
            });
        if asked.is_some() {
            engine.probe.drop_quietly(asked);
        }
        let depth = effects.depth;
        let out = engine
            .decisions
            .apply(&mut self.tally, key, hash, &mut effects, self.jobs);
        self.jobs.extend(out);
        depth
    }
}
