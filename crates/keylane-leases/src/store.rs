//! The interface between leases and their store.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::StoreError;
pub use crate::owner::Owner;

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

    /// Returns who has the lease of a key, of whatever owner; `None` if it is free. It changes
    /// nothing.
    ///
    /// The answer is for people, and may be old when it comes. Nothing that decides asks for it.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError>;
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

/// Who has a lease, for people who look.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The owner, as the store has it.
    pub owner: String,
    /// The token of its grant.
    pub token: Token,
    /// How long it lasts at most, unless it is renewed; `None` if the store does not know.
    pub remaining: Option<Duration>,
    /// Whether all the store knows is that it ends with a session of its process. Then `remaining`
    /// counts from the end of that process, and does not get less before.
    pub ends_with_session: bool,
}

impl Holder {
    /// Creates a holder with this token, whose lease lasts this long at most.
    pub fn new(owner: impl Into<String>, token: Token, remaining: Option<Duration>) -> Self {
        Self {
            owner: owner.into(),
            token,
            remaining,
            ends_with_session: false,
        }
    }

    /// Says that it ends with a session of its process.
    #[must_use]
    pub fn of_session(mut self) -> Self {
        self.ends_with_session = true;
        self
    }
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
