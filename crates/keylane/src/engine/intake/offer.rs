//! The router offers a message to a lane with a discipline.

use super::super::message::{Accepted, Envelope, Job, Parked, Queued, Work};
use super::super::outcome::{Outcome, Tally};
use super::super::room::Freed;
use super::super::{Engine, HandedBack, Overflow};
use crate::clock::Instant;
use crate::error::Failure;
use crate::lanes::Effects;
use crate::types::Spec;

impl<T: Spec> Engine<T> {
    /// Offers a message to the lane of its key. Returns the depth of the lane.
    pub(super) fn offer(
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
        self.step_or_make(&key, hash, now, &mut effects, |lane, effects| {
            let spares = self.lanes.spares();
            lane.offer(parked, now, &self.rules, spares, recall, effects);
        });
        if asked.is_some() {
            self.drop_quietly(asked);
        }
        let depth = effects.depth;
        let out = self.apply(tally, key, hash, &mut effects, jobs);
        jobs.extend(out);
        depth
    }

    /// Handles a message that a full lane refused. Returns the dead letter, if one is to be
    /// delivered. It is delivered without its lane, which goes on meanwhile.
    pub(in super::super) fn refuse(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        refused: Parked<T>,
    ) -> Option<Job<T>> {
        let Parked { message, envelope } = refused;
        if self.settings.overflow != Overflow::DeadLetter {
            self.settle(tally, envelope, Outcome::Displaced(message));
            return None;
        }
        let work = Work::letter(0, Failure::LaneFull, Some(key));
        Some(Job {
            key: None,
            hash,
            message,
            envelope,
            work,
        })
    }

    /// Hands back a message that was never placed in a lane.
    pub(in super::super) fn hand_back_accepted(
        &self,
        tally: &mut Tally,
        accepted: Accepted<T>,
        accepted_at: u64,
    ) {
        let Accepted {
            key,
            message,
            obligation,
            ..
        } = accepted;
        let envelope = Envelope {
            obligation,
            accepted_at,
        };
        self.hand_back(tally, HandedBack::idle(key, message, 0), envelope);
    }

    /// Marks a message that waits outside of the lanes as stalled. Not to be called under a lock.
    pub(in super::super) fn stall_outside(&self, accepted: &mut Accepted<T>) {
        let mut freed = Freed::default();
        self.room
            .stall_obligation(&mut accepted.obligation, &mut freed);
        self.room.free(freed);
    }
}
