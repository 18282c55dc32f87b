//! What is counted of leases, and what is shown of one.

use std::time::Duration;

use bytes::Bytes;

use crate::store::Token;

/// Counters since the leases were opened, and gauges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseCounts {
    /// Leases that are held or requested.
    pub(crate) held: u64,
    /// How many more there may be.
    pub(crate) room: u64,
    pub(crate) granted: u64,
    /// Answers that another process has the lease.
    pub(crate) taken: u64,
    /// Leases that were lost because they ran out.
    pub(crate) ran_out: u64,
    /// Leases that were lost because another process has them.
    pub(crate) taken_over: u64,
    pub(crate) failed_acquires: u64,
    pub(crate) failed_renewals: u64,
    pub(crate) failed_releases: u64,
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
