//! The protocols of groups.

/// How a group shares its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Each rebalance takes all partitions from all members.
    Eager,
    /// A rebalance takes only partitions that move.
    Cooperative,
    /// The broker decides (KIP-848).
    New,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Eager, Self::Cooperative, Self::New];

    pub(crate) fn properties(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Eager => &[("partition.assignment.strategy", "range")],
            Self::Cooperative => &[("partition.assignment.strategy", "cooperative-sticky")],
            Self::New => &[("group.protocol", "consumer")],
        }
    }
}
