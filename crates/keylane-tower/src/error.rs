//! Why there is no response.

use std::fmt;

use keylane::{EnterError, TurnstileClosed};

/// Why there is no response.
///
/// It is not itself a [`std::error::Error`], so that it can turn into a boxed one whatever the inner
/// error is, as tower's other middleware wants it: [`LaneFull`] and [`Closed`] can be found in that box
/// with `downcast_ref`, and so can what the inner service said.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// As many requests of this key as its lane holds are here already. The request was not called;
    /// those of other keys are not concerned. Try again later.
    LaneFull,
    /// The lanes are closed: the request was not called.
    Closed,
    /// The inner service failed, or was not ready and failed.
    Inner(E),
}

/// As many requests of this key as its lane holds are here already: [`Error::LaneFull`] in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this key are waiting")]
pub struct LaneFull;

/// The lanes are closed: [`Error::Closed`] in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more requests are taken")]
pub struct Closed;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<E: Into<BoxError>> From<Error<E>> for BoxError {
    fn from(error: Error<E>) -> Self {
        match error {
            Error::LaneFull => LaneFull.into(),
            Error::Closed => Closed.into(),
            Error::Inner(inner) => inner.into(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LaneFull => LaneFull.fmt(f),
            Self::Closed => Closed.fmt(f),
            Self::Inner(inner) => inner.fmt(f),
        }
    }
}

impl<E, K> From<EnterError<K>> for Error<E> {
    fn from(error: EnterError<K>) -> Self {
        match error {
            EnterError::LaneFull(_) => Self::LaneFull,
            _ => Self::Closed,
        }
    }
}

impl<E> From<TurnstileClosed> for Error<E> {
    fn from(TurnstileClosed: TurnstileClosed) -> Self {
        Self::Closed
    }
}
