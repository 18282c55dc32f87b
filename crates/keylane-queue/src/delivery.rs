//! A message on its way between its lane and the workers.

use keylane_rt::unwind::Quiet;

/// A message beside its key.
pub(super) struct KeyedMessage<K, M> {
    pub(super) key: Quiet<K>,
    pub(super) hash: u64,
    pub(super) message: Quiet<M>,
}

/// The head of a lane while it is ready or leased, and how many times it was leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery<T> {
    pub(super) item: T,
    pub(super) attempts: u32,
}

impl<T> Delivery<T> {
    /// For a message that has just become the head of its lane.
    pub(super) fn new(item: T) -> Self {
        Self { item, attempts: 0 }
    }
}

/// A head that its lane holds until it is delivered again.
pub(super) struct DelayedHead<T> {
    pub(super) delivery: Delivery<T>,
    /// Together with the time, it names the entry of the lease table that ends the delay.
    pub(super) number: u64,
}
