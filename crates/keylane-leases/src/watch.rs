//! Leases as people look at them: counts, and the keys that are held.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::counts::{HeldLease, LeaseStats};
use crate::shared::Shared;
use crate::store::Owner;

/// A handle to watch [`Leases`](crate::Leases). It does not keep them open. A clone watches the
/// same ones. See [`Leases::watch`](crate::Leases::watch).
#[derive(Clone)]
pub struct LeaseWatch(pub(crate) Arc<Shared>);

impl LeaseWatch {
    /// Returns the owner of the leases, for the store.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// Returns the counts. It does not ask the store.
    pub fn stats(&self) -> LeaseStats {
        let counts = self.0.counts();
        LeaseStats {
            held: counts.held,
            room: counts.room,
            waiting: self.0.turns.len() as u64,
            granted: counts.granted,
            taken: counts.taken,
            ran_out: counts.ran_out,
            taken_over: counts.taken_over,
            failed_calls: counts.failed_acquires + counts.failed_renewals + counts.failed_releases,
            is_closed: self.0.is_closed(),
        }
    }

    /// Returns up to `most` leases that are held, the one that ends first first: with a store that
    /// answers, the one whose renewal is the oldest. It does not ask the store, nor walk all
    /// leases.
    pub fn held(&self, most: usize) -> Vec<HeldLease> {
        self.0.held(most, Instant::now())
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseWatch")
            .field("owner", self.owner())
            .finish_non_exhaustive()
    }
}
