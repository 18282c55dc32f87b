//! A message whose handler has returned and which is not settled yet.

use super::super::message::Envelope;
use crate::types::Types;

/// The obligation of a message whose attempt is over.
pub(crate) struct Open<T: Types> {
    pub(in crate::engine) hash: u64,
    pub(in crate::engine) envelope: Envelope<T>,
    /// The message, where it is kept for another attempt or a dead letter.
    pub(in crate::engine) kept: Option<T::Message>,
}

/// Identifies a message in flight.
#[derive(Clone, Copy)]
pub(super) struct Head<'a, K> {
    /// The key of its lane. `None`: it has no lane.
    pub(super) key: Option<&'a K>,
    pub(super) hash: u64,
    pub(super) attempt: u32,
    pub(super) accepted_at: u64,
}
