//! Disciplines: what a lane does with a new arrival, and what it lets start.
//!
//! Without one, a lane is first in, first out. [`Coalesce`] makes one message of several, and
//! [`Sequence`] starts messages in the order of their versions. [`Delayed`] says whether other
//! messages of the key may pass a delayed one.

// What a key remembers when its lane is gone is here, too. The lanes keep what they need of it in
// `keylane-lanes`, and the engine carries it out.

mod coalesce;
pub use coalesce::Coalesce;
pub(crate) use coalesce::{How, Merge};

mod sequence;
#[doc(inline)]
pub use keylane_lanes::OnGap;
pub use sequence::Sequence;
pub(crate) use sequence::{Sequencing, Version};

mod versions;
pub(crate) use versions::{Forgotten, Versions};

mod record;
pub(crate) use record::Recorded;

mod delayed;
pub use delayed::Delayed;

use keylane_rt::Arc;
use keylane_source::VersionStore;

/// What the builder decided about arrivals.
pub(crate) enum Discipline<K, M> {
    /// One after the other.
    Fifo,
    Coalesce(Coalesce<M>),
    Sequence(Box<Sequencing<K>>),
}

impl<K, M> Discipline<K, M> {
    /// What keys remember of their versions, where lanes sequence.
    pub(crate) fn versions(&self) -> Option<&Versions<K>> {
        Some(&self.sequencing()?.versions)
    }

    /// The user's function that makes one message of two, where lanes merge.
    pub(crate) fn merge(&self) -> Option<&Merge<M>> {
        match self {
            Self::Coalesce(Coalesce {
                how: How::Merge(merge),
            }) => Some(merge),
            _ => None,
        }
    }

    /// How lanes sequence, if they do.
    pub(crate) fn sequencing(&self) -> Option<&Sequencing<K>> {
        match self {
            Self::Sequence(sequencing) => Some(sequencing),
            Self::Fifo | Self::Coalesce(_) => None,
        }
    }

    /// Where versions are kept, if they are.
    pub(crate) fn store(&self) -> Option<Arc<dyn VersionStore<K>>> {
        self.sequencing()?.versions.store.clone()
    }
}
