//! The versions of etcd.

use std::fmt;

/// A version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EtcdKind {
    /// etcd 3.4, the version of Debian 12.
    Etcd34,
    /// etcd 3.7.
    Etcd37,
}

impl EtcdKind {
    /// Both of them, for tests that apply to each.
    pub const ALL: [Self; 2] = [Self::Etcd34, Self::Etcd37];

    /// Returns the name with the version, such as `etcd 3.4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd34 => "etcd 3.4",
            Self::Etcd37 => "etcd 3.7",
        }
    }
}

impl fmt::Display for EtcdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
