//! Why a source is opened again.

use std::fmt;
use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::SourceError;

/// Longer than any wait whose end matters.
pub(in super::super) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug)]
pub(in super::super) enum Trouble {
    Failed(SourceError),
    /// A call has not returned in this time.
    Late(Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Late(_) => f.write_str("a call to the source did not return in time"),
        }
    }
}

/// A function of the user panicked while messages were placed. It is not known which were, and all
/// of them come anew.
pub(in super::super) fn panicked(text: &str) -> SourceError {
    SourceError::failed(format!("it panicked: {text}"))
}

/// A time that is later, and exists.
pub(in super::super) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by.min(FAR)).unwrap_or(from)
}
