//! Which message is in flight.

/// Identifies a message in flight.
#[derive(Clone, Copy)]
pub(super) struct Head<'a, K> {
    /// The key of its lane. `None`: it has no lane.
    pub(super) key: Option<&'a K>,
    pub(super) hash: u64,
    pub(super) attempt: u32,
    pub(super) accepted_at: u64,
}
