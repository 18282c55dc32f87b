//! The interface between leases and their store.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::StoreError;

/// Keeps leases: which owner has which key, under which token, and until when.
///
/// A lease *runs out* its time to live after the store has last granted or renewed it. Only the
/// clock of the store counts: clocks of different machines are never compared. The lease is *held*
/// from the grant until it runs out or is released.
///
/// # Implementing a store
///
/// Each call is one round trip, or a few, however many keys it names. Within a call no key occurs
/// twice. The suite in [`conformance`](crate::conformance) checks all of these rules.
///
/// # Cancel safety
///
/// The caller drops a call that takes too long. Once polled, the call may be done as a whole, in
/// part or not at all, and may be done later than a call that follows it.
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// Grants each lease that another owner does not hold. The answers are in the order of the
    /// wishes.
    ///
    /// A lease that `owner` itself holds is granted again: the answer to an earlier call may have
    /// been lost. That never shortens the lease: an earlier call may also take effect late, after
    /// the grant of a lease that is in use.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: some or none of it may be granted.
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError>;

    /// Renews each lease from now on, for its time to live. The answers are in the order of the
    /// claims: whether this owner holds the lease under this token.
    ///
    /// A lease that has run out, and that was not granted since, may be renewed or not.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: some or none of it may be renewed.
    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError>;

    /// Ends each lease that this owner holds under this token. Ignores the others.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: some or none of it may be released.
    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError>;
}

/// A fencing token: each grant of a key has a higher one than all grants of that key before.
///
/// Each write under a lease carries its token, and the target of the write refuses a token below
/// the highest that it has seen for the key. Then a holder that was paused past the end of its
/// lease, and does not know it yet, can write nothing.
///
/// The idea and the term are from Martin Kleppmann, *How to do distributed locking* (2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The owner of leases: one [`Leases`](crate::Leases), for its whole life.
///
/// At most 64 bytes of ASCII, and never used by two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// Creates a unique owner: the process id, and 64 random bits.
    pub fn random() -> Self {
        Self(format!("{}-{:016x}", std::process::id(), random_bits()))
    }

    /// Returns the owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns random bits, seeded by the operating system. Not for secrets.
pub(crate) fn random_bits() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}

/// A request for a lease.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key of the lease.
    pub key: Bytes,
    /// Its time to live.
    pub ttl: Duration,
}

impl Wish {
    /// Creates a request for the lease of a key, with this time to live.
    pub fn new(key: impl Into<Bytes>, ttl: Duration) -> Self {
        Self {
            key: key.into(),
            ttl,
        }
    }
}

/// The answer of a store to a [`Wish`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lease is held from now on.
    Granted(Token),
    /// Another owner holds it.
    Taken {
        /// How long it lasts, unless it is renewed or released.
        remaining: Duration,
    },
}

/// A lease that was granted, and may still be held.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key of the lease.
    pub key: Bytes,
    /// The token of the grant.
    pub token: Token,
    /// Its time to live.
    pub ttl: Duration,
}

impl Claim {
    /// Creates a claim of a key under this token.
    pub fn new(key: impl Into<Bytes>, token: Token, ttl: Duration) -> Self {
        Self {
            key: key.into(),
            token,
            ttl,
        }
    }
}
