//! The errors of a request without a response.

use std::fmt;

use keylane_semaphore::AcquireError;

/// The reason why a request has no response.
///
/// This type does not implement [`std::error::Error`], so that it converts into a boxed error
/// whatever the inner error is, as tower's other middleware requires. In the box, [`LaneFull`] and
/// [`Closed`] and the inner service's error are found with `downcast_ref`.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Error<E> {
    /// The lane of this key is full. The inner service was not called. Requests of other keys are
    /// not affected. Try again later.
    LaneFull,
    /// The semaphore of the layer is closed. The inner service was not called.
    Closed,
    /// The inner service failed, in `poll_ready` or in its response.
    Inner(E),
}

keylane_rt::text_in_debug! { Error<E: fmt::Display>: LaneFull, Closed, Inner }

/// The lane of this key is full: [`Error::LaneFull`] in a box.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this key are waiting")]
pub struct LaneFull;

keylane_rt::text_in_debug! { LaneFull }

/// The semaphore of the layer is closed: [`Error::Closed`] in a box.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no more requests are accepted")]
pub struct Closed;

keylane_rt::text_in_debug! { Closed }

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

impl<E, K> From<AcquireError<K>> for Error<E> {
    fn from(error: AcquireError<K>) -> Self {
        match error {
            AcquireError::LaneFull(_) => Self::LaneFull,
            _ => Self::Closed,
        }
    }
}

impl<E> From<keylane_semaphore::Closed> for Error<E> {
    fn from(_: keylane_semaphore::Closed) -> Self {
        Self::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_their_text() {
        keylane_testkit::error_texts! {
            Error<&str> => Error::LaneFull, Error::Closed, Error::Inner("no route");
            LaneFull => LaneFull;
            Closed => Closed;
        }
    }
}
