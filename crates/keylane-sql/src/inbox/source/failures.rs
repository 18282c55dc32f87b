//! Parts of the source that fail while the others go on.

use std::fmt;

use keylane_connector::Parts;

use crate::error::SqlError;

/// A part of the source that can fail, named by what succeeds when it is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Messages are claimed, read and removed.
    Messages,
    /// Letters are written for handlers that have dropped their transactions.
    Letters,
    /// Claims are renewed.
    Claims,
    /// The lanes of dead workers are freed.
    Dead,
    Orphans,
    Known,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Messages => "messages",
            Self::Letters => "letters",
            Self::Claims => "claims",
            Self::Dead => "keys of dead workers",
            Self::Orphans => "keys without a worker",
            Self::Known => "old ids",
        })
    }
}

/// The failures, which the source shares with the tasks of its session.
pub(super) type Failures = Parts<Part>;

/// Records that a part fails and is tried again.
pub(super) fn fail(failures: &Failures, part: Part, error: &SqlError) {
    match error.is_made_again() {
        true => failures.fail_for_now(part, error),
        false => failures.fail(part, error),
    }
}
