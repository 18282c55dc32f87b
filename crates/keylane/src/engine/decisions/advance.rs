//! Moves lanes on.

use keylane_lanes::{Effects, Next};
use keylane_rt::clock;

use super::Decisions;
use crate::engine::lane::{Lane, LaneEffects};
use crate::engine::message::{Job, Parked, Queued};
use crate::engine::table::{AfterUnlock, Wait};
use crate::types::Spec;

/// What follows from a plain lane that took the slow path.
type Slow<T> = (LaneEffects<T>, Option<AfterUnlock<T>>);

impl<T: Spec> Decisions<T> {
    /// Moves a lane on after its job has settled. Returns the next job, or the scheduled lane
    /// itself.
    #[inline]
    pub(crate) fn advance(&self, key: Option<T::Key>, hash: u64) -> Option<Queued<T>> {
        let key = key?;
        if self.table.has_discipline {
            return self.advance_by_plan(key, hash);
        }
        let (mut job, mut slow) = (None, None);
        self.table.lanes.advance_or_end(hash, &key, |lane| {
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
                self.table.apply_after_unlock(after_unlock);
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
        let before = Wait::of(lane);
        lane.advance(now, &self.table.rules, &mut effects);
        let after_unlock = self
            .table
            .apply_locked(lane, key, hash, now, before, &mut effects);
        let next = match effects.removes {
            true => Next::Remove,
            false => Next::Stay,
        };
        *slow = Some((effects, after_unlock));
        next
    }
}
