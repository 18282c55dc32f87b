//! Whether the lease of a key is held.

use std::task;

use super::Starts;
use crate::engine::leases::HeldLease;
use crate::engine::message::{Job, Queued, Work};
use crate::handler::Context;
use crate::types::Spec;

impl<T: Spec> Starts<T> {
    /// Whether a job may start as far as leases are concerned. The context has its token then.
    #[inline]
    pub(crate) fn is_leased(&self, context: &mut Context<T::Key>, job: &mut Job<T>) -> bool {
        let Some(leases) = &self.table.leases else {
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
    pub(crate) fn hand_lease_on(&self, context: &Context<T::Key>, next: &mut Option<Queued<T>>) {
        if self.table.leases.is_some()
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
    pub(crate) fn has_lost_lease(
        &self,
        key: Option<&T::Key>,
        hash: u64,
        cx: &mut task::Context<'_>,
    ) -> bool {
        match (&self.table.leases, key) {
            (Some(leases), Some(key)) => leases.watch(hash, key, cx),
            _ => false,
        }
    }
}
