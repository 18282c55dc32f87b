//! Heads that wait for the leases of their keys.

use keylane_lanes::{Effects, Hold};
use keylane_rt::clock;
use keylane_rt::unwind::cloned;
use tracing::Level;

use super::Decisions;
use crate::engine::lane::Lane;
use crate::engine::leases::Asked;
use crate::engine::message::{Envelope, Held, Job, Queued, Work};
use crate::engine::settlement::Tally;
use crate::observe::message_line::What;
use crate::types::Spec;

/// A job that may have started before, and waits for a lease.
const WHY: &str = "the lease of its key is not held";

impl<T: Spec> Decisions<T> {
    /// Gives a job that does not start back to its lane, until the lease of its key is held.
    pub(crate) fn wait_for_lease(&self, tally: &mut Tally, job: Job<T>) -> Option<Queued<T>> {
        let Some(key) = job.key.as_ref().and_then(cloned) else {
            self.settlement.count_lost_messages();
            self.table.hand_back_job(job);
            return None;
        };
        let hash = job.hash;
        if let Work::Attempt(1) = job.work {
            let queued = self.park_unleased(tally, job);
            return queued.or_else(|| self.ask_for_lease(key, hash));
        }
        self.hold_unleased(tally, key, hash, job.held(WHY.into()))
    }

    /// Gives a message back that has not started, and what was to start with it: in its lane it may
    /// expire, or go for another one.
    fn park_unleased(&self, tally: &mut Tally, mut job: Job<T>) -> Option<Queued<T>> {
        self.settlement.flush(tally);
        let (key, hash) = (job.key.take()?, job.hash);
        let now = clock::now();
        let mut job = Some(job);
        let mut effects = Effects::new();
        self.table
            .step(&key, hash, now, &mut effects, |lane, effects| {
                let Some(job) = job.take() else { return };
                let items = job.parked_apart();
                lane.wait_for_lease(items, &self.table.rules, self.table.lanes.spares(), effects);
            });
        if let Some(job) = job {
            // The lane of a job that is out is there.
            self.table.hand_back_job(job);
            return None;
        }
        let queued = self.apply_quiet(tally, key, hash, &mut effects);
        self.settlement.flush(tally);
        queued
    }

    /// The attempt of a message was dropped, because the lease of its key was lost. It does not
    /// count.
    pub(crate) fn lost_lease(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        (message, envelope, attempt): (T::Message, Envelope<T>, u32),
    ) -> Option<Queued<T>> {
        let shown = self.probe.shown(Some(&key), hash);
        let source = envelope.obligation.source();
        let lost = || What::LeaseLost { attempt };
        self.sources.log(Level::WARN, shown, source, lost);
        let held = Held {
            message,
            envelope,
            work: Work::Attempt(attempt),
            why: WHY.into(),
        };
        self.hold_unleased(tally, key, hash, held)
    }

    /// Holds a head that may have started before.
    fn hold_unleased(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        held: Held<T>,
    ) -> Option<Queued<T>> {
        self.settlement.flush(tally);
        let Some(asked_for) = cloned(&key) else {
            self.settlement.count_lost_messages();
            self.table.hand_back_held(tally, None, held);
            return None;
        };
        let hold = Hold::Unleased(clock::now());
        let queued = self.hold_head(tally, key, hash, held, hold);
        queued.or_else(|| self.ask_for_lease(asked_for, hash))
    }

    /// Asks for the lease of a key whose lane waits for it. If it was granted meanwhile, the lane
    /// goes on.
    fn ask_for_lease(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let leases = self.table.leases.as_ref()?;
        if leases.ask(hash, &key) == Asked::Waits {
            self.probe.drop_quietly(key);
            return None;
        }
        let mut effects = Effects::new();
        if !self
            .table
            .step(&key, hash, clock::now(), &mut effects, Lane::<T>::leased)
        {
            self.probe.drop_quietly(key);
            return None;
        }
        self.follow(key, hash, &mut effects)
    }
}
