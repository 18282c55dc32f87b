//! How a step ended.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    TimedOut,
    /// Exited well without a single test: a filter that has lost its tests must not look green.
    NoTests,
    Skipped(&'static str),
}

impl Outcome {
    /// Whether the next step may follow.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Outcome::Passed | Outcome::Skipped(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("ok"),
            Outcome::Failed => f.write_str("FAILED"),
            Outcome::TimedOut => f.write_str("FAILED: out of time"),
            Outcome::NoTests => f.write_str("FAILED: no test has run"),
            Outcome::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}
