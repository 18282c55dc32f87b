//! The kinds of servers.

use std::fmt;

/// A server that speaks the protocol of Redis, in one of its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RedisKind {
    /// Redis 7.0, the version of Debian 12.
    Redis7,
    /// Redis 8.2.
    Redis8,
    /// Valkey 9.1, which began as a copy of Redis 7.2.
    Valkey9,
}

impl RedisKind {
    /// All of them, for tests that apply to each.
    pub const ALL: [Self; 3] = [Self::Redis7, Self::Redis8, Self::Valkey9];

    /// Returns the name with the major version, such as `Redis 7`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis7 => "Redis 7",
            Self::Redis8 => "Redis 8",
            Self::Valkey9 => "Valkey 9",
        }
    }
}

impl fmt::Display for RedisKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
