//! Carries out the decisions of an operator about one key. Each decision is one visit to the lane.

use keylane_lanes::{Decision, Effects, Out, Undecidable};
use keylane_rt::{Arc, clock};

use super::super::Engine;
use super::super::message::Work;
use super::super::settlement::Tally;
use crate::observe::hot_keys::Stop;
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Pauses a key: no job of it starts until it is resumed.
    pub(crate) fn pause(self: &Arc<Self>, key: &T::Key, hash: u64) {
        let now = clock::now();
        let mut effects = Effects::new();
        self.table
            .step_or_make(key, hash, now, &mut effects, |lane, effects| {
                let spares = self.table.lanes.spares();
                let paused = lane.decide(Decision::Pause, now, &self.table.rules, spares, effects);
                debug_assert!(paused.is_ok(), "every lane can be paused");
            });
        self.probe.hot_keys.stopped(Stop::Paused, hash);
        self.apply_and_enqueue(&mut Tally::default(), key.clone(), hash, &mut effects);
    }

    /// Resumes a key. A paused lane goes on; a halted job is let out again as a first attempt; the
    /// time to wait for missing versions starts again.
    pub(crate) fn resume(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        self.decide(key, hash, Decision::Resume)
    }

    /// Settles the waiting job as skipped, or with the failure it was halted by; the lane goes on
    /// behind it. Missing versions are given up.
    pub(crate) fn skip(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        self.decide(key, hash, Decision::Skip)
    }

    /// Lets a job out now that waits for its next attempt or for the dead-letter sink.
    pub(crate) fn retry_now(self: &Arc<Self>, key: &T::Key, hash: u64) -> Result<(), Undecidable> {
        self.decide(key, hash, Decision::RetryNow)
    }

    fn decide(
        self: &Arc<Self>,
        key: &T::Key,
        hash: u64,
        decision: Decision,
    ) -> Result<(), Undecidable> {
        // The lane may drop its own key; this clone is used afterwards.
        let owner = key.clone();
        let now = clock::now();
        let mut decided = Err(Undecidable::Nothing);
        let mut effects = Effects::new();
        self.table
            .step(key, hash, now, &mut effects, |lane, effects| {
                decided = lane.decide(
                    decision,
                    now,
                    &self.table.rules,
                    self.table.lanes.spares(),
                    effects,
                );
            });
        decided?;
        let mut tally = Tally::default();
        self.apply_and_enqueue(&mut tally, owner, hash, &mut effects);
        self.flush(&mut tally);
        Ok(())
    }

    /// Replaces the message of the waiting job and returns the old one. A job that has failed is
    /// let out at once, as a first attempt.
    pub(crate) fn replace(
        self: &Arc<Self>,
        key: &T::Key,
        hash: u64,
        message: T::Message,
        weight: u32,
    ) -> Result<T::Message, (T::Message, Undecidable)> {
        let owner = key.clone();
        let now = clock::now();
        let (mut message, mut decided, mut freed) = (message, Err(Undecidable::Nothing), 0);
        let mut old_work = None;
        let mut effects = Effects::new();
        self.table
            .step(key, hash, now, &mut effects, |lane, effects| {
                let spares = self.table.lanes.spares();
                decided = lane.decide(Decision::Replace, now, &self.table.rules, spares, effects);
                if decided.is_err() {
                    return;
                }
                // The job that is let out, or else the first parked message, which will be the next
                // job.
                let waiting = match &mut effects.out {
                    Out::Head { head, .. } => {
                        // Its attempts were those of the old message.
                        old_work = Some(std::mem::replace(&mut head.work, Work::Attempt(1)));
                        Some((&mut head.message, &mut head.envelope))
                    }
                    _ => {
                        let first = lane.parked_mut().iter_mut().next();
                        first.map(|first| (&mut first.message, &mut first.envelope))
                    }
                };
                if let Some((waiting, envelope)) = waiting {
                    std::mem::swap(waiting, &mut message);
                    let charge = envelope.obligation.charge_mut();
                    freed = self.room.reweigh(charge, weight);
                    charge.earlier = 0;
                }
            });
        if let Err(why) = decided {
            return Err((message, why));
        }
        self.room.give(0, freed);
        self.probe.drop_quietly(old_work);
        self.apply_and_enqueue(&mut Tally::default(), owner, hash, &mut effects);
        Ok(message)
    }

    /// Settles every message of a key that has not started or waits after a failure. Returns how
    /// many.
    pub(crate) fn purge(self: &Arc<Self>, key: &T::Key, hash: u64) -> usize {
        let owner = key.clone();
        let now = clock::now();
        let mut effects = Effects::new();
        let found = self
            .table
            .step(key, hash, now, &mut effects, |lane, effects| {
                let spares = self.table.lanes.spares();
                let purged = lane.decide(Decision::Purge, now, &self.table.rules, spares, effects);
                debug_assert!(purged.is_ok(), "every lane can be purged");
            });
        if !found {
            return 0;
        }
        let count = effects.leaving();
        let mut tally = Tally::default();
        self.apply_and_enqueue(&mut tally, owner, hash, &mut effects);
        self.flush(&mut tally);
        count
    }
}
