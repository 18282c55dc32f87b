//! What is measured besides the workloads.

use crate::disciplines;
use crate::keys::Keys;

/// One measurement that has a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Bytes and allocations of each contender.
    Memory,
    /// What keylane remembers of many keys under a rate.
    RateKeys,
    /// Many dispatchers at rest.
    Idle,
    /// The pull queues.
    Pull,
    /// A source in memory.
    Source,
    /// What stands in front of a service.
    Tower,
    /// Each discipline beside plain FIFO, at so many keys.
    Disciplines(u64),
}

impl Extra {
    /// In the order in which they are measured.
    pub fn all() -> impl Iterator<Item = Self> {
        let disciplines = disciplines::KEYS.map(Self::Disciplines);
        [
            Self::Memory,
            Self::RateKeys,
            Self::Idle,
            Self::Pull,
            Self::Source,
            Self::Tower,
        ]
        .into_iter()
        .chain(disciplines)
    }

    /// As `--only` finds it.
    pub fn name(self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::RateKeys => "rate-keys".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Pull => "pull".to_owned(),
            Self::Source => "source".to_owned(),
            Self::Tower => "tower".to_owned(),
            Self::Disciplines(keys) => format!("disciplines/{}", Keys::Cycle(keys).label()),
        }
    }

    /// Whether a program under the counting allocator measures it.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Memory | Self::RateKeys | Self::Idle)
    }
}
