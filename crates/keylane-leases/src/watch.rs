//! Leases as people look at them: counts, and the keys that are held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::shared::Shared;
use crate::store::{Owner, Token};

/// A handle to watch [`Leases`](crate::Leases). It does not keep them open. A clone watches the same
/// ones. See [`Leases::watch`](crate::Leases::watch).
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
    /// answers, the one whose renewal is the oldest. It does not ask the store, nor walk all leases.
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

/// What is counted of leases: gauges, and counters since they were opened.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Leases that this process holds or asks for.
    pub held: u64,
    /// Further leases that it may hold or ask for.
    pub room: u64,
    /// Keys that another holder has, and for which callers of this process wait.
    pub waiting: u64,
    /// Leases that the store has granted.
    pub granted: u64,
    /// Requests for leases that another process had.
    pub taken: u64,
    /// Leases that were lost because they ran out.
    pub ran_out: u64,
    /// Leases that were lost because another process has them.
    pub taken_over: u64,
    /// Calls to the store that failed.
    pub failed_calls: u64,
    /// Whether they are closed.
    pub is_closed: bool,
}

/// A lease that this process holds.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The key.
    pub key: Bytes,
    /// The fencing token.
    pub token: Token,
    /// Its time to live at the store.
    pub ttl: Duration,
    /// For how long this process still holds it, unless it is renewed.
    pub remaining: Duration,
}
