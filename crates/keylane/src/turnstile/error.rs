//! What can go wrong at a turnstile, one small type per operation.

use std::fmt;

use thiserror::Error;

/// The turnstile is closed.
#[derive(Error, Clone, Copy, Debug, PartialEq, Eq)]
#[error("the turnstile is closed")]
pub struct TurnstileClosed;

/// Why a key has no place. The key comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum EnterError<K> {
    /// As many as `lane_capacity` of this key have a place. Others are not concerned.
    #[error("the lane of the key is full")]
    LaneFull(K),
    /// The turnstile is closed.
    #[error("the turnstile is closed")]
    Closed(K),
}

/// Why a key has no place at once. The key comes back.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum TryEnterError<K> {
    /// As many as `capacity` have a place.
    #[error("the turnstile is at its capacity")]
    Full(K),
    /// As many as `lane_capacity` of this key have a place. Others are not concerned.
    #[error("the lane of the key is full")]
    LaneFull(K),
    /// The turnstile is closed.
    #[error("the turnstile is closed")]
    Closed(K),
}

impl<K> EnterError<K> {
    /// The key that did not enter.
    pub fn into_inner(self) -> K {
        match self {
            Self::LaneFull(key) | Self::Closed(key) => key,
        }
    }
}

impl<K> TryEnterError<K> {
    /// The key that did not enter.
    pub fn into_inner(self) -> K {
        match self {
            Self::Full(key) | Self::LaneFull(key) | Self::Closed(key) => key,
        }
    }
}

impl<K> From<EnterError<K>> for TryEnterError<K> {
    fn from(error: EnterError<K>) -> Self {
        match error {
            EnterError::LaneFull(key) => Self::LaneFull(key),
            EnterError::Closed(key) => Self::Closed(key),
        }
    }
}

// The key is the user's: it is not shown, and need not be showable.
impl<K> fmt::Debug for EnterError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LaneFull(_) => "LaneFull(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<K> fmt::Debug for TryEnterError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::LaneFull(_) => "LaneFull(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}
