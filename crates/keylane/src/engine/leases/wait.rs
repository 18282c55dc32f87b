//! A head that waits for the lease of its key.

use std::task;

use keylane_lanes::{Effects, Hold};
use keylane_rt::unwind::cloned;
use keylane_rt::{Arc, clock};

use super::super::message::{Envelope, Held, Job, Queued, Work};
use super::super::outcome::Tally;
use super::super::{Engine, Lane};
use super::shard::HeldLease;
use super::table::Asked;
use crate::handler::Context;
use crate::types::Spec;

/// A job that may have started before, and waits for a lease.
const WHY: &str = "the lease of its key is not held";

impl<T: Spec> Engine<T> {
    /// Whether a job may start as far as leases are concerned. The context has its token then.
    #[inline]
    pub(in super::super) fn is_leased(
        &self,
        context: &mut Context<T::Key>,
        job: &mut Job<T>,
    ) -> bool {
        let Some(leases) = &self.leases else {
            return true;
        };
        let Some(key) = &job.key else {
            return true;
        };
        let lease = leases.held_still(job.work.take_lease(), job.hash, key);
        if let Some(lease) = lease {
            context.set_lease(lease.token(), lease.end());
        }
        lease.is_some()
    }

    /// Hands the lease of an attempt that was not lost on to the next message of its lane.
    #[inline]
    pub(in super::super) fn hand_lease_on(
        &self,
        context: &Context<T::Key>,
        next: &mut Option<Queued<T>>,
    ) {
        if self.leases.is_some()
            && let Some(Queued::Job(job)) = next
            && job.key.is_some()
            && let work @ Work::Attempt(1) = &mut job.work
        {
            let (token, end) = context.lease();
            *work = Work::Leased(HeldLease::of(token, end));
        }
    }

    /// Whether the lease is lost under which a job is in flight. If not, this task is woken then.
    #[inline]
    pub(in super::super) fn has_lost_lease(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        cx: &mut task::Context<'_>,
    ) -> bool {
        match (&self.leases, key) {
            (Some(leases), Some(key)) => leases.watch(hash, key, cx),
            _ => false,
        }
    }

    /// Gives a job that does not start back to its lane, until the lease of its key is held.
    pub(in super::super) fn wait_for_lease(
        self: &Arc<Self>,
        tally: &mut Tally,
        job: Job<T>,
    ) -> Option<Queued<T>> {
        let Some(key) = job.key.as_ref().and_then(cloned) else {
            self.count_lost_messages();
            self.hand_back_job(job);
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
        self.flush(tally);
        let (key, hash) = (job.key.take()?, job.hash);
        let now = clock::now();
        let mut job = Some(job);
        let mut effects = Effects::new();
        self.step(&key, hash, now, &mut effects, |lane, effects| {
            let Some(job) = job.take() else { return };
            let items = job.parked_apart();
            lane.wait_for_lease(items, &self.rules, self.lanes.spares(), effects);
        });
        if let Some(job) = job {
            // The lane of a job that is out is there.
            self.hand_back_job(job);
            return None;
        }
        let queued = self.apply_quiet(tally, key, hash, &mut effects);
        self.flush(tally);
        queued
    }

    /// The attempt of a message was dropped, because the lease of its key was lost. It does not
    /// count.
    pub(in super::super) fn lost_lease(
        self: &Arc<Self>,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        (message, envelope, attempt): (T::Message, Envelope<T>, u32),
    ) -> Option<Queued<T>> {
        tracing::warn!(
            target: "keylane",
            key = %self.shown(Some(&key), hash),
            attempt,
            "the lease of the key was lost: the attempt is dropped, and starts again under a new \
             lease"
        );
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
        self: &Arc<Self>,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        held: Held<T>,
    ) -> Option<Queued<T>> {
        self.flush(tally);
        let Some(asked_for) = cloned(&key) else {
            self.count_lost_messages();
            self.hand_back_held(tally, None, held);
            return None;
        };
        let hold = Hold::Unleased(clock::now());
        let queued = self.hold_head(tally, key, hash, held, hold);
        queued.or_else(|| self.ask_for_lease(asked_for, hash))
    }

    /// Asks for the lease of a key whose lane waits for it. If it was granted meanwhile, the lane
    /// goes on.
    fn ask_for_lease(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let leases = self.leases.as_ref()?;
        if leases.ask(hash, &key) == Asked::Waits {
            self.drop_quietly(key);
            return None;
        }
        let mut effects = Effects::new();
        if !self.step(&key, hash, clock::now(), &mut effects, Lane::<T>::leased) {
            self.drop_quietly(key);
            return None;
        }
        self.follow(key, hash, &mut effects)
    }
}
