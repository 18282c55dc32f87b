//! Lanes that are exclusive across processes.

use keylane_rt::Arc;
use keylane_source::lease::LaneLeases;

use super::settings::Builder;

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Starts messages of a key only while the dispatcher holds the lease of that key.
    ///
    /// Of all processes whose leases are kept in the same store, one at a time handles a key. The
    /// dispatcher acquires a lease when a message of its key is next. It keeps the lease while
    /// there are messages of the key, and [lingers](LaneLeases::linger) for a moment after that.
    ///
    /// A key that waits for its lease holds up no other key, takes no concurrency, and shows as
    /// [`LaneState::Leasing`](crate::watching::LaneState::Leasing). Its messages do not count
    /// against the [`capacity`](Self::capacity), up to
    /// [`stalled_capacity`](Self::stalled_capacity). Messages without a key need no lease.
    ///
    /// When a lease is lost, the attempt under it is dropped, as at an
    /// [`abort`](crate::Dispatcher::abort), and does not count. The message starts again once the
    /// dispatcher holds the lease again, under a higher [token](crate::Context::lease_token); for
    /// that each attempt gets a clone of the message. Dead letters of a key are delivered under its
    /// lease, too.
    ///
    /// `drain` waits for leases, as it waits for retries; `close` and `abort` hand back the
    /// messages that wait.
    ///
    /// A key that always has messages in this process is never given to another one.
    ///
    /// With [`hash_lanes`](crate::Dispatcher::hash_lanes) a lease is for a lane, and so for all of
    /// its keys. Processes agree on a lane only if they have the same number of lanes: end the
    /// others before you [resize](crate::routing::HashLanes::resize) one.
    ///
    /// `Leases::lanes` of the crate `keylane-leases` returns leases for this setting, in memory or
    /// in a store that processes share. [`LaneLeases`] has an example without that crate.
    pub fn leased_by(mut self, leases: impl LaneLeases<K>) -> Self
    where
        M: Clone,
    {
        self.config.settings.leases = Some(Arc::new(leases));
        self.config.settings.keep = Some(M::clone);
        self
    }
}
