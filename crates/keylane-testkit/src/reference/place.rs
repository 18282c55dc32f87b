//! The position of a delivery of the reference server.

use std::fmt;

/// A message at the reference server, and the number of its delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The partition.
    pub partition: u32,
    /// The place in the partition, from 0.
    pub offset: u64,
    /// The number of the delivery. No two deliveries have the same.
    pub tag: u64,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.partition, self.offset, self.tag)
    }
}
