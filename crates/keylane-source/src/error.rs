//! The errors of a source.

use std::fmt;

/// Any error, boxed: the error type of connectors and sinks.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The error of a source that has failed, or that cannot do what it is asked to do.
///
/// After a failure the driver opens the source again: all its generations are over then. A source
/// that can mend a fault by itself, for example with a new connection, does so and reports nothing.
pub struct SourceError(Kind);

enum Kind {
    Failed(BoxError),
    Unsupported(&'static str),
    Pending,
}

impl SourceError {
    /// Returns the error of a source that has failed, for this reason.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        Self(Kind::Failed(error.into()))
    }

    /// Returns the error of a source that cannot do this, and has not declared that it can.
    pub fn unsupported(what: &'static str) -> Self {
        Self(Kind::Unsupported(what))
    }

    /// Returns the answer of a source to a dead letter that is on its way and not durable yet. The
    /// same letter is offered again soon. It is no failure, and nothing is logged.
    ///
    /// So a source that waits for a slow server does not hold up its other messages.
    pub fn pending() -> Self {
        Self(Kind::Pending)
    }

    /// Returns whether a dead letter is on its way: see [`pending`](Self::pending).
    pub fn is_pending(&self) -> bool {
        matches!(self.0, Kind::Pending)
    }

    /// Returns whether the source cannot do this at all.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.0, Kind::Unsupported(_))
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Failed(error) => error.fmt(f),
            Kind::Unsupported(what) => write!(f, "the source cannot {what}"),
            Kind::Pending => f.write_str("the dead letter is not durable yet"),
        }
    }
}

keylane_rt::text_in_debug! { SourceError }

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Failed(error) => Some(&**error),
            Kind::Unsupported(_) | Kind::Pending => None,
        }
    }
}
