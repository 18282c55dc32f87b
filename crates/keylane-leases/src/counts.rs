//! What is counted of leases.

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
