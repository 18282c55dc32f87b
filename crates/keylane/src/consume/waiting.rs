//! A message of a source on its way into its lane.

use keylane_rt::OwnedSemaphorePermit;

/// A message that is not in its lane yet.
pub(super) struct Waiting<K, M> {
    pub(super) key: Option<K>,
    pub(super) hash: u64,
    pub(super) weight: u32,
    /// `None`: it is settled already, and only to be run.
    pub(super) slot: Option<u32>,
    pub(super) message: M,
    /// The right to enter its full lane.
    pub(super) gate: Option<OwnedSemaphorePermit>,
}
